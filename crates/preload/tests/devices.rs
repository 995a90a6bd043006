//! SO_BINDTODEVICE at a host with two links: the same program on the kernel's sockets and on netchan's, its lines compared.

mod common;

use std::path::Path;

use common::have;

/// Two links to a kernel that has 10.99.0.1 behind both. The kernel's program has a namespace of its own, joined by a veth for each link.
const NAMESPACES: &str = "\
unshare -n sleep 100 & N=$!
await sh -c \"[ \\$(readlink /proc/$N/ns/net) != \\$(readlink /proc/$$/ns/net) ]\"
ip addr add 10.99.0.1/32 dev lo
ip tuntap add dev nc1 mode tap && ip addr add 10.78.0.1/24 dev nc1 && ip link set nc1 up
for n in 0 1; do
  ip link add p$n type veth peer name nc$n netns $N
  ip addr add 10.8$n.0.1/24 dev p$n && ip link set p$n up
  nsenter -t $N -n ip addr add 10.8$n.0.2/24 dev nc$n
  nsenter -t $N -n ip link set nc$n up
  nsenter -t $N -n ip route add default via 10.8$n.0.1 metric $n
done
for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done
cat > links.toml <<'END'
[[link]]
kind = \"tap\"
name = \"nc0\"
address = [\"10.77.0.2/24\"]
gateway = \"10.77.0.1\"
[[link]]
kind = \"tap\"
name = \"nc1\"
address = [\"10.78.0.2/24\"]
gateway = \"10.78.0.1\"
END
unset NETCHAN_LINK NETCHAN_ADDRESS NETCHAN_GATEWAY
export NETCHAN_CONFIG=links.toml
";

fn alike(regime: &str) {
    if !have(&["python3", "nsenter"]) {
        return;
    }
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/py/devices.py");
    let program = program.display();
    let script = format!(
        "{NAMESPACES}export NETCHAN_REGIME={regime}\n\
         python3 {program} serve > up-{regime} & P=$!\nawait grep -q serving up-{regime}\n\
         nsenter -t $N -n timeout 50 python3 {program} 10.80.0.2 10.80.0.1 10.81.0.2 10.81.0.1 || {{ kill $P $N; exit 1; }}\n\
         echo '--- netchan'\n\
         (on_netchan python3 {program} 10.77.0.2 10.77.0.1 10.78.0.2 10.78.0.1); R=$?; kill $P $N; exit $R"
    );
    let Some(output) = common::in_namespace(&script) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
    let (kernel, netchan) = said.split_once("--- netchan\n").expect("two halves");
    assert!(kernel.lines().count() > 60, "{kernel}");
    let differ: Vec<_> = (kernel.lines().zip(netchan.lines()))
        .filter(|(linux, ours)| linux != ours)
        .collect();
    assert!(differ.is_empty(), "Linux, netchan: {differ:#?}");
    assert_eq!(kernel, netchan);
}

#[test]
fn sockets_keep_to_their_link() {
    alike("app-channel");
}

#[test]
fn sockets_keep_to_their_link_under_locked() {
    alike("locked");
}

#[test]
fn sockets_keep_to_their_link_in_socket_channel() {
    alike("socket-channel");
}
