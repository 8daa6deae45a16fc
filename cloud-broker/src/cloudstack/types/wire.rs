//! Lenient reading of JSON values: what is there in any usable spelling, nothing otherwise.

use std::net::IpAddr;

use serde_json::Value;

use super::ids::Id;
use super::{Tag, Timestamp};

/// An object that lists return.
pub(crate) trait Entity: Sized {
    /// Names under which an answer carries the array, and a job result the object.
    const KEYS: &'static [&'static str];

    /// The entity, unless the value has no identity.
    fn parse(fields: Fields<'_>) -> Option<Self>;

    /// What makes it one and the same in two pages.
    fn identity(&self) -> &str;
}

/// The fields of a JSON object; of any other value: none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(&'a Value);

impl<'a> Fields<'a> {
    pub(crate) fn of(value: &'a Value) -> Self {
        Self(value)
    }

    /// The raw value; `null` counts as absent.
    pub(crate) fn raw(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A text; numbers and booleans as written, the empty text as absent.
    pub(crate) fn text(self, name: &str) -> Option<String> {
        self.raw(name).and_then(text).filter(|text| !text.is_empty())
    }

    /// An id; a malformed one counts as absent.
    pub(crate) fn id<I: Id>(self, name: &str) -> Option<I> {
        self.text(name).and_then(|text| I::from_text(text.trim()).ok())
    }

    /// A whole number, as number or text.
    pub(crate) fn number(self, name: &str) -> Option<i64> {
        self.raw(name).and_then(number)
    }

    /// A whole number that fits; others count as absent.
    pub(crate) fn small<N: TryFrom<i64>>(self, name: &str) -> Option<N> {
        self.number(name).and_then(|number| N::try_from(number).ok())
    }

    /// A truth value, as boolean or text.
    pub(crate) fn flag(self, name: &str) -> Option<bool> {
        match self.raw(name)? {
            Value::Bool(flag) => Some(*flag),
            Value::String(text) if text.eq_ignore_ascii_case("true") => Some(true),
            Value::String(text) if text.eq_ignore_ascii_case("false") => Some(false),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// An IP address.
    pub(crate) fn ip(self, name: &str) -> Option<IpAddr> {
        self.text(name).and_then(|text| text.trim().parse().ok())
    }

    /// A point in time.
    pub(crate) fn time(self, name: &str) -> Option<Timestamp> {
        self.text(name).and_then(|text| Timestamp::parse(&text))
    }

    /// The elements of a list; a lone object counts as a list of one.
    pub(crate) fn list(self, name: &str) -> impl Iterator<Item = Fields<'a>> {
        let values: &'a [Value] = match self.raw(name) {
            Some(Value::Array(values)) => values,
            Some(value @ Value::Object(_)) => std::slice::from_ref(value),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => &[],
        };
        values.iter().map(Fields)
    }

    /// The tags of an object; those without a key are left out.
    pub(crate) fn tags(self) -> Vec<Tag> {
        self.list("tags").filter_map(Tag::parse).collect()
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

pub(crate) fn number(value: &Value) -> Option<i64> {
    match value {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "guarded: the number is whole and small"
        )]
        Value::Number(number) => number.as_i64().or_else(|| {
            let float = number.as_f64()?;
            (float.fract() == 0.0 && float.abs() < 9e15).then_some(float as i64)
        }),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
