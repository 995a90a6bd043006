//! What may be asked of a capture.

use serde_json::{Value, json};

use super::*;

fn asked(name: &str, value: &Value) -> Result<(Request, Bounds), String> {
    let mut ask = json!({ "stack": "1", "link": null, "way": null, "filter": "", "snap": null, "frames": 10, "seconds": 5, "mib": 1 });
    ask[name] = value.clone();
    let ask: Ask = serde_json::from_value(ask).map_err(|e| e.to_string())?;
    ask.request().map_err(|refused| refused.why)
}

#[test]
fn bounds_are_kept_to() {
    for (name, most) in [
        ("frames", FRAMES_MAX),
        ("seconds", SECONDS_MAX),
        ("mib", MIB_MAX),
    ] {
        for good in [1, most] {
            assert!(asked(name, &json!(good)).is_ok(), "{name} {good}");
        }
        for bad in [
            json!(0),
            json!(most + 1),
            json!(-1),
            json!(u64::MAX),
            json!("1"),
            json!(1.5),
        ] {
            assert!(asked(name, &bad).is_err(), "{name} {bad}");
        }
    }
    for bad in [json!(0), json!(65_536), json!(-1)] {
        assert!(asked("snap", &bad).is_err(), "{bad}");
    }
    let (request, bounds) = asked("snap", &json!(60)).expect("a request");
    assert_eq!((request.snap, bounds.bytes), (Some(60), 1 << 20));
    assert!(asked("way", &json!("sideways")).is_err());
    assert!(asked("path", &json!("/etc/passwd")).is_err());
}

#[test]
fn filters_that_are_none_are_refused() {
    let long = "x".repeat(FILTER_MAX + 1);
    assert!(asked("filter", &json!(long)).is_err_and(|why| why.contains("characters")));
    // Where there is no libpcap, it is that which is said.
    assert!(asked("filter", &json!("tcp prot 80")).is_err());
    assert!(asked("filter", &json!("a\0b")).is_err_and(|why| why.contains("zero byte")));
    assert!(asked("filter", &json!("  ")).is_ok_and(|(request, _)| request.program.is_empty()));
}
