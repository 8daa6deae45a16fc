use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

use super::*;

const READ: Command = Command::ListZones;
const WRITE: Command = Command::CreateLoadBalancerRule;

fn answer(status: u16, content_type: &str, body: &str) -> Answer {
    Answer {
        status,
        content_type: content_type.to_owned(),
        body: body.as_bytes().to_vec(),
        ..Answer::default()
    }
}

fn json_answer(status: u16, body: &str) -> Answer {
    answer(status, "application/json;charset=utf-8", body)
}

fn class(command: Command, answer: &Answer) -> (&'static str, bool) {
    match understand(command, answer) {
        Ok(_) => ("ok", false),
        Err(error) => (error.class(), error.maybe_executed()),
    }
}

#[rstest]
#[case::list(r#"{"listzonesresponse":{"count":1,"zone":[{"id":"z"}]}}"#, json!({"count":1,"zone":[{"id":"z"}]}))]
#[case::empty_list(r#"{"listzonesresponse":{}}"#, json!({}))]
#[case::other_key(r#"{"createLBStickinessPolicy":{"id":"x"}}"#, json!({"id":"x"}))]
#[case::key_null(r#"{"null":{"success":true}}"#, json!({"success":true}))]
#[case::null(r#"{"listzonesresponse":null}"#, json!({}))]
#[case::second_key(r#"{"cloud-stack-version":"4","listzonesresponse":{"count":0}}"#, json!({"count":0}))]
#[case::control_characters("{\"listzonesresponse\":{\"text\":\"a\u{1}b\"}}", json!({"text":"a b"}))]
fn the_content_is_what_the_only_key_holds(#[case] body: &str, #[case] content: Value) {
    assert_eq!(understand(READ, &json_answer(200, body)), Ok(content));
}

#[rstest]
#[case(400, "", "rejected")]
#[case(
    401,
    "unable to verify user credentials and/or request signature",
    "bad_credentials"
)]
#[case::old_server(
    401,
    "The given command 'x' either does not exist, is not available for user.",
    "denied"
)]
#[case(429, "please retry after [2000] ms.", "throttled")]
#[case(430, "", "rejected")]
#[case(431, "invalid value", "rejected")]
#[case::gone(
    431,
    "due to incorrect long value format, or entity does not exist or due to",
    "gone"
)]
#[case(432, "The API [x] does not exist or is not available", "denied")]
#[case(503, "Maintenance or Shutdown has been initiated", "busy")]
#[case(530, "Internal error", "rejected")]
#[case(531, "", "denied")]
#[case(532, "", "limit")]
#[case(533, "", "no_capacity")]
#[case(537, "", "conflict")]
#[case::of_the_future(599, "", "rejected")]
fn every_code_has_its_class(#[case] code: u16, #[case] text: &str, #[case] class_: &str) {
    let body = json!({"errorresponse": {"uuidList": [], "errorcode": code, "errortext": text}}).to_string();
    assert_eq!(class(READ, &json_answer(code, &body)).0, class_);
    // A number as text, and a status that disagrees.
    let body = json!({"xresponse": {"errorcode": code.to_string(), "errortext": text}}).to_string();
    assert_eq!(class(READ, &json_answer(200, &body)).0, class_);
}

#[rstest]
#[case::bad_gateway(502, "text/html", "<html>Bad Gateway</html>", "unreachable", true)]
#[case::gateway_timeout(504, "text/html", "<html></html>", "unreachable", true)]
#[case::unavailable(503, "text/html", "<html></html>", "unreachable", true)]
#[case::empty(500, "", "", "unreachable", true)]
#[case::header_too_large(431, "text/html", "<html></html>", "odd", false)]
#[case::method(405, "", "", "odd", false)]
#[case::not_found(404, "text/html", "<html></html>", "odd", false)]
#[case::redirect(302, "text/html", "", "odd", false)]
#[case::login_page(200, "text/html", "<!DOCTYPE html><html></html>", "odd", false)]
#[case::nothing(200, "", "", "odd", true)]
#[case::cut(
    200,
    "application/json",
    r#"{"createloadbalancerruleresponse":{"id":"a"#,
    "odd",
    true
)]
#[case::scalar(200, "application/json", "17", "odd", true)]
#[case::gateway_throttles(429, "text/html", "<html></html>", "throttled", false)]
fn what_is_no_answer_of_a_server_tells_whether_a_write_may_have_been_executed(
    #[case] status: u16,
    #[case] content_type: &str,
    #[case] body: &str,
    #[case] class_: &str,
    #[case] maybe_executed: bool,
) {
    let answer = answer(status, content_type, body);
    assert_eq!(class(WRITE, &answer), (class_, maybe_executed));
    assert_eq!(class(READ, &answer), (class_, false));
}

#[test]
fn xml_of_a_server_is_understood() {
    let body = "<?xml version=\"1.0\"?><errorresponse><errorcode>429</errorcode>\
        <errortext>The given user has reached his/her account api limit, please retry after 3500 ms.</errortext></errorresponse>";
    let error = understand(WRITE, &answer(429, "text/xml", body)).unwrap_err();
    let ApiError::Throttled { after, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(after, Duration::from_millis(3500));
}

#[test]
fn the_wait_of_a_throttled_call_is_in_its_text_else_in_a_header() {
    let throttled = |text: &str, retry_after| {
        let error = refused(READ, 429, text, retry_after);
        let ApiError::Throttled { after, .. } = error else {
            panic!("{error}")
        };
        after
    };
    let seconds = Duration::from_secs;
    assert_eq!(
        throttled("please retry after [4321] ms.", None),
        Duration::from_millis(4321)
    );
    assert_eq!(throttled("slow down", Some(seconds(7))), seconds(7));
    assert_eq!(throttled("slow down", None), THROTTLED_DEFAULT);
}

#[test]
fn no_answer_makes_an_account_wait_longer_than_five_minutes() {
    let forever = Some(Duration::from_secs(u64::MAX));
    let json = refused(READ, 429, "slow down", forever);
    let text = refused(READ, 429, "please retry after [18446744073709551615] ms.", None);
    let html = Answer {
        retry_after: forever,
        ..answer(429, "text/html", "<html></html>")
    };
    for error in [json, text, understand(READ, &html).unwrap_err()] {
        let ApiError::Throttled { after, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(after, Duration::from_mins(5));
    }
}

#[test]
fn a_refusal_of_a_write_with_530_may_have_left_something() {
    let body = r#"{"xresponse":{"errorcode":530,"errortext":"Internal error"}}"#;
    assert_eq!(class(WRITE, &json_answer(530, body)), ("rejected", true));
    assert_eq!(class(READ, &json_answer(530, body)), ("rejected", false));
}

#[test]
fn texts_of_servers_become_short_lines() {
    assert_eq!(shortened(" a\nb\t"), "a b");
    let long = shortened(&"é".repeat(2 * MAX_TEXT));
    assert_eq!(long.chars().count(), MAX_TEXT + 1);
}

proptest! {
    #[test]
    fn no_body_upsets_it(status in 100u16..700, body in prop::collection::vec(any::<u8>(), 0..200)) {
        let answer = Answer { status, body, ..Answer::default() };
        let _ = understand(WRITE, &answer);
    }

    #[test]
    fn nothing_with_an_error_status_is_ever_a_success(status in 400u16..600, body in "\\PC{0,60}") {
        let body = json!({"xresponse": {"text": body}}).to_string();
        prop_assert!(understand(READ, &json_answer(status, &body)).is_err());
    }
}
