//! What an answer means. Pure.
//!
//! Decides, from status and body, between the content of an answer and an [`ApiError`]. Facts: an answer is one object
//! with one key of any name (`errorresponse`, even `null`); status and `errorcode` agree; errors of gateways and of the
//! servlet container are HTML, XML or empty; 431 with HTML is a header too large, with JSON a parameter; 429 tells the
//! milliseconds to wait in its text; texts may carry raw control characters.

use std::time::Duration;

use serde_json::{Map, Value};

use super::compact::Compact;
use super::http::Answer;
use super::types::Fields;
use super::{ApiError, Command, Refusal};

/// When to come back after a 429 that does not say.
const THROTTLED_DEFAULT: Duration = Duration::from_secs(1);
/// Longest that an account waits because an answer says so; gateways say anything.
const THROTTLED_LONGEST: Duration = Duration::from_mins(5);
const MAX_TEXT: usize = 500;

/// The content of an answer, or what it means instead.
pub(super) fn understand(command: Command, answer: &Answer) -> Result<Value, ApiError> {
    let Some(value) = parse(command, &answer.body) else {
        return Err(foreign(command, answer));
    };
    let Some(inner) = content(value) else {
        let reason = format!("status {} with JSON that is no object", answer.status);
        return Err(odd(command, reason, command.is_write()));
    };
    let code = Fields::of(&inner)
        .small::<u16>("errorcode")
        .filter(|code| *code != 0);
    let code = code.or_else(|| Some(answer.status).filter(|status| *status >= 400));
    match code {
        None => Ok(inner),
        Some(code) => {
            let text = Fields::of(&inner).text("errortext").unwrap_or_default();
            Err(refused(command, code, &text, answer.retry_after))
        }
    }
}

/// The class of an error code and its text.
fn refused(command: Command, code: u16, text: &str, retry_after: Option<Duration>) -> ApiError {
    let refusal = Refusal {
        command,
        code: Some(code),
        text: shortened(text),
    };
    match code {
        // Old servers say 401, too, when the role lacks the command.
        401 if text.contains("does not exist") || text.contains("not available") => ApiError::Denied(refusal),
        401 => ApiError::BadCredentials(refusal),
        429 => throttled(refusal, milliseconds(text).or(retry_after)),
        431 if text.contains("entity does not exist") => ApiError::Gone(refusal),
        432 | 531 => ApiError::Denied(refusal),
        503 => ApiError::Busy(refusal),
        532 => ApiError::Limit(refusal),
        533 => ApiError::NoCapacity(refusal),
        537 => ApiError::Conflict(refusal),
        _ => ApiError::Rejected(refusal),
    }
}

/// Strict JSON, or the same with control characters blanked.
fn parse(command: Command, body: &[u8]) -> Option<Value> {
    if command == Command::ListApis
        && let Ok(Compact(value)) = serde_json::from_slice(body)
    {
        return Some(value);
    }
    if let Ok(value) = serde_json::from_slice(body) {
        return Some(value);
    }
    let text = String::from_utf8_lossy(body);
    if !text.trim_start().starts_with('{') {
        return None;
    }
    let blanked: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    serde_json::from_str(&blanked).ok()
}

/// What the only key holds. With several keys, the one that ends like an envelope; a scalar is no content.
fn content(value: Value) -> Option<Value> {
    let Value::Object(mut object) = value else {
        return None;
    };
    let key = match object.len() {
        1 => object.keys().next().cloned(),
        _ => object.keys().find(|key| key.ends_with("response")).cloned(),
    };
    match key {
        Some(key) => match object.remove(&key) {
            Some(inner @ Value::Object(_)) => Some(inner),
            // An empty list is an empty object; some releases leave even that out.
            Some(Value::Null) => Some(Value::Object(Map::new())),
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) | None => None,
        },
        None => None,
    }
}

/// An answer that is no JSON: of a gateway, of the servlet container, or XML of a server.
fn foreign(command: Command, answer: &Answer) -> ApiError {
    let text = String::from_utf8_lossy(&answer.body);
    if let Some(code) = element(&text, "errorcode").and_then(|code| code.trim().parse().ok()) {
        return refused(
            command,
            code,
            element(&text, "errortext").unwrap_or_default(),
            answer.retry_after,
        );
    }
    let kind = match (text.trim().is_empty(), answer.content_type.split(';').next()) {
        (true, _) => "an empty answer".to_owned(),
        (false, Some(kind)) if !kind.is_empty() => format!("an answer of type {kind}"),
        (false, _) => "an answer without a type".to_owned(),
    };
    let reason = format!("status {} with {kind}", answer.status);
    match answer.status {
        429 => {
            let refusal = Refusal {
                command,
                code: Some(429),
                text: reason,
            };
            throttled(refusal, answer.retry_after)
        }
        // A gateway can't know what became of the call behind it.
        500..=599 => ApiError::Unreachable {
            command,
            reason,
            maybe_executed: command.is_write(),
        },
        // The call did not get as far as a CloudStack.
        300..=499 => odd(command, format!("{reason}; is the URL that of the API?"), false),
        200 if text.trim_start().starts_with('<') => {
            odd(command, format!("{reason}; is the URL that of the API?"), false)
        }
        _ => odd(command, reason, command.is_write()),
    }
}

fn throttled(refusal: Refusal, said: Option<Duration>) -> ApiError {
    let after = said.unwrap_or(THROTTLED_DEFAULT).min(THROTTLED_LONGEST);
    ApiError::Throttled { refusal, after }
}

fn odd(command: Command, reason: String, maybe_executed: bool) -> ApiError {
    ApiError::Odd {
        command,
        reason,
        maybe_executed,
    }
}

/// The text of an XML element.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(inner, _)| inner)
}

/// The number in `please retry after [N] ms`.
fn milliseconds(text: &str) -> Option<Duration> {
    let (_, rest) = text.split_once("retry after")?;
    let digits: String = rest
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().ok().map(Duration::from_millis)
}

/// One line that fits into a log line.
pub(super) fn shortened(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let line = line.trim();
    match line.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests;
