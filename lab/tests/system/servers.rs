//! Servers that people run, where they are installed (the long form only): nginx in one process and redis, unmodified on netchan, and redis' clients.

use std::{fs, time::Duration};

use crate::{
    Case, Outcome,
    place::{KERNEL, Knobs, OURS, SOON, find, socket_address},
    skips::skipped,
    transfer::{fetch, make_file, place_for},
};

pub const CASES: &[Case] = &[("nginx_serves", nginx), ("redis_serves_and_asks", redis)];

/// Whether the long form was asked for and its programs are there.
fn can(name: &str, knobs: &Knobs, programs: &[&str]) -> bool {
    let can = knobs.soak && programs.iter().all(|p| find(p).is_some());
    if !can {
        skipped(
            name,
            &format!("a case of the long form, which takes {programs:?}"),
        );
    }
    can
}

const PATIENCE: Duration = Duration::from_secs(300);

/// One process, as nginx' workers are forked and would find no sockets of netchan's.
const NGINX: &str = "\
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events { worker_connections 1024; }
http {
  access_log off;
  sendfile on;
  tcp_nopush on;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  server {
    listen 0.0.0.0:8000 reuseport backlog=512;
    listen [::]:8000 ipv6only=on;
    root files;
  }
}
";

fn nginx(knobs: &Knobs) -> Outcome {
    if !can("nginx_serves", knobs, &["nginx"]) {
        return Ok(());
    }
    let place = place_for("tap:nc0")?;
    let files = place.folder.join("files");
    fs::create_dir(&files).map_err(|e| e.to_string())?;
    // nginx reads as another user where it is started by root.
    let sum = make_file(&files.join("large"), 256)?;
    fs::write(place.folder.join("nginx.conf"), NGINX).map_err(|e| e.to_string())?;
    let prefix = place.folder.to_string_lossy().into_owned();
    let arguments = ["-p", &prefix, "-c", "nginx.conf"];
    let mut server = place.start_netchan("tap:nc0", "nginx", &arguments)?;
    for address in OURS {
        place.wait_for(&mut server, address, 8000)?;
        let url = format!("http://{}/large", socket_address(address, 8000));
        fetch(&place, place.command("curl"), &url, &sum, 256)
            .map_err(|e| format!("{e}; server: {}", server.said()))?;
        // Many requests on one connection.
        let many = format!("http://{}/large?n=[1-500]", socket_address(address, 8000));
        let arguments = [
            "--silent",
            "--fail",
            "-r",
            "0-999",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}\n",
            &many,
        ];
        let done = place.run("curl", &arguments, PATIENCE)?.success()?;
        if done.output.matches("206").count() != 500 {
            return Err(done.describe());
        }
    }
    Ok(())
}

fn redis(knobs: &Knobs) -> Outcome {
    if !can(
        "redis_serves_and_asks",
        knobs,
        &["redis-server", "redis-benchmark", "redis-cli"],
    ) {
        return Ok(());
    }
    for serving in [true, false] {
        let place = place_for("tap:nc0")?;
        let arguments = [
            "--port",
            "6379",
            "--bind",
            "0.0.0.0",
            "::",
            "--protected-mode",
            "no",
        ];
        let run = |on_netchan: bool, program: &str, arguments: &[&str]| {
            if on_netchan {
                place.start_netchan("tap:nc0", program, arguments)
            } else {
                place.start(program, arguments)
            }
        };
        let mut server = run(serving, "redis-server", &arguments)?;
        place.wait_listening(&mut server, serving, 6379)?;
        let hosts = if serving { OURS } else { KERNEL };
        for host in hosts {
            // Lists of the large values would be many GiB.
            for (depth, bytes, count, tests) in [
                ("1", "3", "50000", "set,get,incr,lpush,lrange_100"),
                ("32", "3", "50000", "set,get,incr,lpush,lrange_100"),
                ("1", "200000", "2000", "set,get"),
            ] {
                let arguments = [
                    "-h", host, "-q", "-c", "50", "-P", depth, "-d", bytes, "-n", count, "-t",
                    tests,
                ];
                let asked = run(!serving, "redis-benchmark", &arguments)?;
                let done = asked.finish(PATIENCE)?.success();
                done.map_err(|e| format!("{e}; server: {}", server.said()))?;
            }
            // A snapshot is written by a forked child, which must not harm its parent's connections.
            for (ask, wanted) in [
                (["SET", "a", "b"], "OK"),
                (["BGSAVE", "", ""], "saving"),
                (["GET", "a", ""], "b"),
            ] {
                let ask: Vec<&str> = ask.into_iter().filter(|word| !word.is_empty()).collect();
                let asked = run(!serving, "redis-cli", &[&["-h", host], &ask[..]].concat())?;
                let done = asked.finish(SOON)?.success()?;
                if !done.output.contains(wanted) {
                    return Err(done.describe());
                }
            }
        }
    }
    Ok(())
}
