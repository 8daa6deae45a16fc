//! Answers on the wire: JSON when asked for, else XML.

use std::fmt::Write as _;

use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;
use serde_json::{Map, Value, json};

use crate::dispatch::Answer;
use crate::error::ApiError;

/// Content type of JSON answers.
pub(crate) const JSON: &str = "application/json;charset=utf-8";

/// A whole answer.
pub(crate) type Reply = Response<Full<Bytes>>;

/// The form that the parameter `response` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Xml,
}

impl Format {
    /// Only `json` in any case is JSON.
    pub(crate) fn of(value: Option<&str>) -> Self {
        if value.is_some_and(|value| value.eq_ignore_ascii_case("json")) {
            Self::Json
        } else {
            Self::Xml
        }
    }
}

/// An answer of the API.
pub(crate) fn api(answer: Answer, format: Format, version: &str) -> Reply {
    let status = answer.result.as_ref().map_or_else(|error| error.code, |_| 200);
    let description = answer
        .result
        .as_ref()
        .err()
        .filter(|error| !matches!(error.code, 400 | 401))
        .map(|error| error.text.clone());
    let versioned = !matches!(status, 400 | 401 | 429 | 432);
    let envelope = answer
        .result
        .as_ref()
        .err()
        .filter(|error| error.nameless)
        .map_or(answer.envelope, |_| "errorresponse".into());
    let (content_type, body) = match format {
        Format::Json => {
            let body = answer.result.unwrap_or_else(|error| error_body(&error));
            (
                JSON,
                Value::Object(Map::from_iter([(envelope, body)])).to_string(),
            )
        }
        Format::Xml => {
            let mut body = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>");
            let attribute = if versioned {
                format!(" cloud-stack-version=\"{version}\"")
            } else {
                String::new()
            };
            let _ = write!(body, "<{envelope}{attribute}>");
            let mut content = answer.result.unwrap_or_else(|error| error_body(&error));
            if let Value::Object(fields) = &mut content {
                fields.remove("uuidList");
            }
            xml(&mut body, &content);
            let _ = write!(body, "</{envelope}>");
            ("text/xml;charset=utf-8", body)
        }
    };
    let mut reply = raw(status, content_type, body);
    if let Some(text) =
        description.and_then(|text| HeaderValue::from_bytes(text.replace(['\r', '\n'], " ").as_bytes()).ok())
    {
        reply.headers_mut().insert("x-description", text);
    }
    reply
}

fn error_body(error: &ApiError) -> Value {
    let mut body = json!({ "uuidList": [], "errorcode": error.code, "errortext": error.text });
    if let (Some(cause), Value::Object(fields)) = (error.cause, &mut body) {
        fields.insert("cserrorcode".into(), cause.into());
    }
    body
}

fn xml(out: &mut String, value: &Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::Array(entries) => entries.iter().for_each(|entry| element(out, name, entry)),
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                        element(out, name, value);
                    }
                }
            }
        }
        Value::Array(entries) => entries.iter().for_each(|entry| xml(out, entry)),
        Value::Null => {}
        Value::String(text) => {
            for c in text.chars() {
                match c {
                    '&' => out.push_str("&amp;"),
                    '<' => out.push_str("&lt;"),
                    '>' => out.push_str("&gt;"),
                    _ => out.push(c),
                }
            }
        }
        Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
    }
}

fn element(out: &mut String, name: &str, value: &Value) {
    out.push('<');
    out.push_str(name);
    out.push('>');
    xml(out, value);
    out.push_str("</");
    out.push_str(name);
    out.push('>');
}

/// Any answer.
pub(crate) fn raw(status: u16, content_type: &str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(value) = HeaderValue::from_str(content_type)
        && !content_type.is_empty()
    {
        reply.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    reply
}

/// What the servlet container says about another path.
pub(crate) fn not_found(path: &str) -> Reply {
    raw(
        404,
        "text/html;charset=iso-8859-1",
        format!(
            "<html><head><title>Error 404 Not Found</title></head><body><h2>HTTP ERROR 404 Not Found</h2><p>URI: {path}</p></body></html>\n"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xml_repeats_the_name_for_every_entry_of_a_list_and_escapes() {
        let mut out = String::new();
        xml(
            &mut out,
            &json!({ "count": 2, "zone": [{ "name": "a<b" }, { "name": "c&d" }] }),
        );
        assert_eq!(
            out,
            "<count>2</count><zone><name>a&lt;b</name></zone><zone><name>c&amp;d</name></zone>"
        );
    }

    #[test]
    fn an_error_of_the_role_has_the_envelope_without_a_command() {
        let answer = Answer {
            envelope: "listzonesresponse".into(),
            result: Err(ApiError::unavailable("no")),
        };
        let reply = api(answer, Format::Json, "4");
        assert_eq!(reply.status(), 432);
        assert_eq!(reply.headers().get("x-description").unwrap(), "no");
    }
}
