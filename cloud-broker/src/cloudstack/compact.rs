//! Reading the one answer that is far longer than what is looked at. Pure.
//!
//! The list of all commands is two megabytes of descriptions, and ten times as much as a tree of values, which would be the most
//! memory that this process ever needs. Here it is read without descriptions and answer fields, and with the parameters as
//! names only. An answer of another shape is read as any other.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// What is left out wherever it stands.
const LEFT_OUT: [&str; 5] = ["description", "isasync", "related", "response", "since"];

/// A value without what nobody looks at.
pub(super) struct Compact(pub(super) Value);

impl<'de> Deserialize<'de> for Compact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

/// A parameter, of which only the name counts.
#[derive(serde::Deserialize)]
struct Parameter {
    name: String,
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(flag.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Compact(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if LEFT_OUT.contains(&name.as_str()) {
                fields.next_value::<IgnoredAny>()?;
            } else if name == "params" {
                let parameters: Vec<Parameter> = fields.next_value()?;
                object.insert(
                    name,
                    parameters.into_iter().map(|parameter| parameter.name).collect(),
                );
            } else {
                let Compact(value) = fields.next_value()?;
                object.insert(name, value);
            }
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_stay_and_descriptions_go() {
        let text = r#"{"listapisresponse":{"count":1,"api":[{"name":"listZones","description":"Lists zones","isasync":false,
            "related":"","params":[{"name":"id","description":"d","type":"uuid","length":255,"required":false}],
            "response":[{"name":"id","type":"string"},{"type":"x"}],"x":[null,true,-1,0.5,{}]}]}}"#;
        let Compact(value) = serde_json::from_str(text).unwrap();
        let expected = serde_json::json!({ "listapisresponse": { "count": 1, "api": [
            { "name": "listZones", "params": ["id"], "x": [null, true, -1, 0.5, {}] }
        ] } });
        assert_eq!(value, expected);
    }

    #[test]
    fn another_shape_is_no_compact_answer() {
        assert!(serde_json::from_str::<Compact>(r#"{"params": "all"}"#).is_err());
        assert!(serde_json::from_str::<Compact>("<html>").is_err());
    }
}
