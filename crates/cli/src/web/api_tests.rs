//! Questions that make no sense, and answers without a stack.

use super::*;

fn api() -> Api {
    Api::new(Arc::new(Stacks::new(Some("none".to_owned()))))
}

fn refused(name: &str, body: &str) -> Refused {
    match api().answer(name, body.as_bytes()) {
        Err(refused) => refused,
        Ok(_) => panic!("{name} {body} was answered"),
    }
}

#[test]
fn questions_that_make_no_sense_are_refused() {
    for (name, body, status) in [
        ("", "{}", 404),
        ("../live", "{}", 404),
        ("live", "", 400),
        ("live", "{", 400),
        ("live", "[]", 400),
        ("live", "{}", 400),
        ("live", r#"{"order":"sideways","reversed":false}"#, 400),
        ("live", r#"{"order":"rate","reversed":false,"more":1}"#, 400),
        (
            "live",
            r#"{"order":"rate","reversed":false,"filter":"port = 1"}"#,
            400,
        ),
        (
            "live",
            r#"{"order":"rate","reversed":false,"stack":"/etc/passwd"}"#,
            404,
        ),
        ("facts", r#"{"stack":"1"}"#, 404),
        (
            "change",
            r#"{"stack":"1","change":{"set":{"name":"a"}}}"#,
            400,
        ),
        (
            "change",
            r#"{"stack":"1","change":{"set":{"name":"a","value":"b"}}}"#,
            404,
        ),
        (
            "change",
            r#"{"stack":"1","change":{"load_module":{"toml":""}}}"#,
            403,
        ),
        (
            "change",
            r#"{"stack":"1","change":{"replace_module":{"toml":""}}}"#,
            403,
        ),
        (
            "plot",
            r#"{"stack":"1","local":"a","remote":"b","seconds":1}"#,
            400,
        ),
        ("stop", r#"{"id":1}"#, 404),
        ("forget", r#"{"id":-1}"#, 400),
        ("file", r#"{"id":"../1"}"#, 400),
        ("data", r#"{"id":1}"#, 404),
    ] {
        let refused = refused(name, body);
        assert_eq!(
            refused.status.as_u16(),
            status,
            "{name} {body}: {}",
            refused.why
        );
    }
    let nested = format!("{}1{}", "[".repeat(50_000), "]".repeat(50_000));
    assert_eq!(refused("live", &nested).status, StatusCode::BAD_REQUEST);
    let long = format!(
        r#"{{"order":"rate","reversed":false,"filter":"{}"}}"#,
        "x".repeat(401)
    );
    assert!(refused("live", &long).why.contains("400 characters"));
}

#[test]
fn without_a_stack_there_is_little_to_see() {
    let asked = r#"{"stack":null,"order":"rtt","reversed":true}"#;
    let Ok(Answer::Json(bytes)) = api().answer("live", asked.as_bytes()) else {
        panic!("no answer");
    };
    let seen: Value = serde_json::from_slice(&bytes).expect("JSON");
    assert_eq!(
        (&seen["stacks"], &seen["stack"]),
        (&json!([]), &Value::Null)
    );
    assert_eq!((&seen["model"], &seen["jobs"]), (&Value::Null, &json!([])));
}
