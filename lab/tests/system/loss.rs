//! Transfers when one packet in a hundred, or in twenty, is lost at random (nftables).

use crate::{
    Case, Outcome,
    place::{Knobs, OURS, Place, SOON, socket_address},
    transfer::{fetch, kernel_device, make_file, nc, patience, place_for, run_iperf3, web_server},
};

pub const CASES: &[Case] = &[
    ("curl_with_1_percent_loss", |k| curl(k, "tap:nc0", 1, 64)),
    ("curl_with_5_percent_loss", |k| curl(k, "tap:nc0", 5, 8)),
    ("curl_with_1_percent_loss_veth", |k| {
        curl(k, "packet:nc0", 1, 32)
    }),
    ("curl_with_5_percent_loss_veth", |k| {
        curl(k, "packet:nc0", 5, 8)
    }),
    ("iperf3_with_1_percent_loss", |k| iperf3(k, 1, 32)),
    ("iperf3_with_5_percent_loss", |k| iperf3(k, 5, 4)),
];

/// Drops `percent` of what comes in and of what goes out at the kernel's `device`; of ARP's and NDP's packets every sixth each way, so that of three
/// questions in a row one is answered: a connect ends where none is (RFC 4861 §10), which is no fault.
pub fn lose(place: &Place, device: &str, percent: usize) -> Outcome {
    let asks = |what: &str| format!("{what} numgen inc mod 6 > 4 drop\n {what} accept");
    let rule = format!(
        "{}\n {}\n numgen random mod 100 < {percent} drop",
        asks("meta protocol arp"),
        asks("icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert }")
    );
    let chain = |hook: &str| {
        format!(
            "chain {hook} {{\n type filter hook {hook} device \"{device}\" priority 0\n {rule}\n }}\n"
        )
    };
    let both = format!(
        "table netdev loss {{\n {} {} }}\n",
        chain("ingress"),
        chain("egress")
    );
    if nft(place, &both).is_ok() {
        return Ok(());
    }
    // A kernel without the egress hook: where the host's own packets pass.
    let chain = |hook: &str| {
        format!("chain {hook} {{\n type filter hook {hook} priority 0\n {rule}\n }}\n")
    };
    nft(
        place,
        &format!(
            "table inet loss {{\n {} {} }}\n",
            chain("input"),
            chain("output")
        ),
    )
}

fn nft(place: &Place, rules: &str) -> Outcome {
    let path = place.folder.join("rules");
    std::fs::write(&path, rules).map_err(|e| e.to_string())?;
    place
        .run("nft", &["-f", &path.to_string_lossy()], SOON)?
        .success()
        .map(drop)
}

fn curl(knobs: &Knobs, link: &str, percent: usize, mib: usize) -> Outcome {
    let mib = if knobs.soak { mib * 8 } else { mib };
    for v6 in [false, true] {
        let place = place_for(link)?;
        let sum = make_file(&place.folder.join("large"), mib)?;
        let ours = OURS[usize::from(v6)];
        let mut server = place.start_netchan(link, "python3", &web_server(v6))?;
        place.wait_for(&mut server, ours, 8000)?;
        lose(&place, kernel_device(link), percent)?;
        let url = format!("http://{}/large", socket_address(ours, 8000));
        fetch(&place, place.command("curl"), &url, &sum, mib).map_err(|e| format!("down: {e}"))?;
        drop((server, place));
        // netchan sends as a client, and the kernel's receiver is hashed.
        let lose = |place: &Place| lose(place, kernel_device(link), percent);
        nc(link, mib, v6, false, true, lose).map_err(|e| format!("up: {e}"))?;
    }
    Ok(())
}

fn iperf3(knobs: &Knobs, percent: usize, mib: usize) -> Outcome {
    let mib = if knobs.soak { mib * 8 } else { mib };
    for v6 in [false, true] {
        for (serving, reverse) in [(true, false), (true, true), (false, false), (false, true)] {
            let place = place_for("tap:nc0")?;
            lose(&place, "nc0", percent)?;
            let amount = format!("{mib}M");
            // Loss may take the connection's own packets: iperf3's control channel waits for them.
            run_iperf3(
                &place,
                "tap:nc0",
                &amount,
                v6,
                serving,
                reverse,
                patience(mib) * 3,
            )
            .map_err(|e| format!("v6 {v6}, netchan serving {serving}, reverse {reverse}: {e}"))?;
        }
    }
    Ok(())
}
