//! The page: what it holds, and what cannot get into it.

use serde_json::{Value, json};

use super::{super::made::Made, *};

fn page(source: &str, notes: &[String]) -> String {
    let mut made = Made::begun(1, 2, [Some(7); 2]);
    for i in 0..10 {
        made.sent(20_000 + u64::from(i) * 100, 1 + i * 1000, 1000);
        made.acked(20_090 + u64::from(i) * 100, 1 + i * 1000);
    }
    let directions = [made.direction(Side::Client), made.direction(Side::Server)];
    let page = Page {
        source,
        number: Some(3),
        begin: Duration::from_secs(1_700_000_000),
        notes,
        directions: directions.iter().collect(),
        first: Side::Client,
    };
    page.html().expect("written")
}

/// What stands in the element with the data.
fn data_of(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"data\">").expect("the element");
    let (data, _) = rest.split_once("</script>").expect("its end");
    serde_json::from_str(data).expect("JSON")
}

#[test]
fn page_holds_the_series() {
    let page = page("trace.pcap", &["a note".to_owned()]);
    let data = data_of(&page);
    assert_eq!(data["title"], "trace.pcap, connection 3");
    assert_eq!(
        (&data["first"], &data["notes"][0]),
        (&json!(0), &json!("a note"))
    );
    let client = &data["directions"][0];
    let count = |name: &str, member: &str| client[name][member].as_array().map(Vec::len);
    assert_eq!(
        (count("bars", "time"), count("bars", "flags")),
        (Some(11), Some(11))
    );
    assert_eq!(count("answers", "window"), Some(11));
    assert_eq!(client["bars"]["begin"][1], 1);
    assert_eq!(client["flight"][0].as_array().map(Vec::len), Some(22));
    let facts = client["facts"].as_array().expect("figures");
    assert!(facts.contains(&json!(["text", "9.77 KiB"])), "{facts:?}");
    assert_eq!(
        data["directions"][1]["title"],
        "server 10.0.0.2:80 → client 10.0.0.1:40000"
    );
}

#[test]
fn page_needs_nothing_from_elsewhere() {
    let page = page("x", &[]);
    for outside in [
        "src=",
        "href=",
        "url(",
        "@import",
        "fetch(",
        "XMLHttpRequest",
        "import(",
    ] {
        assert!(!page.contains(outside), "{outside}");
    }
    // Where it came from is named, and nothing is asked there.
    let addresses: Vec<&str> = page
        .match_indices("://")
        .map(|(at, _)| &page[at - 5..at + 20])
        .collect();
    assert!(
        addresses.iter().all(|at| at.contains("github.com/leeoni")),
        "{addresses:?}"
    );
    assert!(page.contains("default-src 'none'") && page.contains("prefers-color-scheme: dark"));
    assert!(page.contains("The MIT License") && page.contains("Leon Sorokin"));
    assert!(!page.contains("@@"));
}

#[test]
fn hostile_names_stay_data() {
    let name = "</script><script>alert(1)</script><!--<img onerror=x>@@DATA@@&amp;\u{2028}\"\\";
    let page = page(name, &[name.to_owned()]);
    let data = data_of(&page);
    assert_eq!(data["title"], format!("{name}, connection 3"));
    assert_eq!(data["notes"][0], name);
    assert_eq!(page.matches("<script").count(), 4);
    assert!(!page.contains("<img") && !page.contains("<!--"));
}
