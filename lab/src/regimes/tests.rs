//! The experiment at its smallest: every row that the issue names is there, once, with a figure.

use netchan::trace::stages::Stage;

use super::{effort::Effort, rows};
use crate::rig::Rig;

#[test]
fn smallest_run_has_every_row() {
    let rows = rows(&Rig::in_this_process(), &Effort::tiny());
    crate::report::tests::are_sane(&rows);
    let mut ids = vec![
        "cpu_app_channel_over_giant_50k_ratio".to_owned(),
        "cpu_app_channel_over_locked_ratio".to_owned(),
        "cpu_app_channel_over_per_packet_50k_ratio".to_owned(),
        "switches_per_1000_packets_app_channel".to_owned(),
    ];
    let players = [
        "giant",
        "locked",
        "percpu",
        "driver_channel",
        "socket_channel",
        "app_channel",
        "linux",
    ];
    for player in players {
        ids.extend([
            format!("cpu_per_packet_{player}_ns"),
            format!("speedup_{player}_ratio"),
            format!("share_{player}_50k_one_cpu_total_percent"),
        ]);
    }
    for stage in Stage::ALL {
        ids.push(format!("share_per_packet_50k_{}_percent", stage.name()));
    }
    crate::report::tests::has(&rows, &ids);
    let total = rows
        .iter()
        .find(|row| row.id == "share_per_packet_50k_total_percent")
        .unwrap();
    assert_eq!(total.reference.as_deref(), Some("77 % (C5)"));
}
