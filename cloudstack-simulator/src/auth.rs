//! Who calls: the signature as the server checks it, written from the protocol alone.

use base64::Engine as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;

use crate::clock::Stamp;

/// Parameters of a request, the last of each name, as the server takes them.
pub(crate) type Pairs = Vec<(String, String)>;

/// Splits a query or a form. A repeated name keeps its last value; a piece without `=` is a parameter with an empty value.
pub(crate) fn pairs(texts: &[&str]) -> Pairs {
    let mut pairs: Pairs = Vec::new();
    for (name, value) in texts
        .iter()
        .flat_map(|text| url::form_urlencoded::parse(text.as_bytes()))
    {
        match pairs.iter_mut().find(|pair| pair.0 == name) {
            Some(pair) => pair.1 = value.into_owned(),
            None => pairs.push((name.into_owned(), value.into_owned())),
        }
    }
    pairs
}

/// A parameter whose name counts in any case.
pub(crate) fn value<'a>(pairs: &'a Pairs, name: &str) -> Option<&'a str> {
    pairs
        .iter()
        .find(|pair| pair.0.eq_ignore_ascii_case(name))
        .map(|pair| pair.1.as_str())
}

/// The signature that the parameters should have.
fn signature(pairs: &Pairs, secret: &str) -> Option<String> {
    let mut signed: Vec<&(String, String)> = pairs
        .iter()
        .filter(|pair| !pair.0.eq_ignore_ascii_case("signature"))
        .collect();
    signed.sort_by(|a, b| a.0.cmp(&b.0));
    let parts: Vec<String> = signed
        .iter()
        .map(|(name, value)| format!("{name}={}", encoded(value)))
        .collect();
    let mut mac = Hmac::<Sha1>::new_from_slice(secret.as_bytes()).ok()?;
    mac.update(parts.join("&").to_lowercase().as_bytes());
    Some(base64::engine::general_purpose::STANDARD.encode(mac.finalize().into_bytes()))
}

/// Form encoding, with a blank as `%20`.
fn encoded(value: &str) -> String {
    url::form_urlencoded::byte_serialize(value.as_bytes())
        .collect::<String>()
        .replace('+', "%20")
}

/// What the server demands beyond a right signature.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demands {
    /// Version 3 with `expires` at most 15 minutes ahead is a must.
    pub(crate) timestamps: bool,
}

/// Whether the signature and the expiry are right.
pub(crate) fn is_signed(pairs: &Pairs, secret: &str, demands: Demands, now: Stamp) -> bool {
    let timed = value(pairs, "signatureVersion") == Some("3");
    if timed {
        let Some(expires) = value(pairs, "expires").and_then(Stamp::parse) else {
            return false;
        };
        let latest = now.plus(std::time::Duration::from_mins(15));
        if expires < now || demands.timestamps && expires > latest {
            return false;
        }
    } else if demands.timestamps {
        return false;
    }
    let given = value(pairs, "signature");
    given.is_some() && signature(pairs, secret).as_deref() == given
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(signature: &str) -> Pairs {
        let text = format!(
            "apikey=AKEY&command=listZones&expires=2031-05-01T10%3A20%3A30Z&name=zone%20%2A%5Ba%5D~&response=json&signatureversion=3&signature={signature}"
        );
        pairs(&[&text])
    }

    fn at(text: &str) -> Stamp {
        Stamp::parse(text).unwrap()
    }

    #[test]
    fn the_published_test_vector_is_accepted() {
        let pairs = vector("rxmRURpnjLsoLfwDfjWaxL%2BglFc%3D");
        assert!(is_signed(
            &pairs,
            "topsecret",
            Demands { timestamps: false },
            at("2031-05-01T10:00:00Z")
        ));
    }

    #[test]
    fn another_secret_or_a_passed_expiry_is_refused() {
        let pairs = vector("rxmRURpnjLsoLfwDfjWaxL%2BglFc%3D");
        let demands = Demands { timestamps: false };
        assert!(!is_signed(&pairs, "other", demands, at("2031-05-01T10:00:00Z")));
        assert!(!is_signed(
            &pairs,
            "topsecret",
            demands,
            at("2031-05-01T10:20:31Z")
        ));
    }

    #[test]
    fn an_expiry_more_than_15_minutes_ahead_is_refused_where_timestamps_are_a_must() {
        let pairs = vector("rxmRURpnjLsoLfwDfjWaxL%2BglFc%3D");
        let demands = Demands { timestamps: true };
        assert!(!is_signed(
            &pairs,
            "topsecret",
            demands,
            at("2031-05-01T10:05:29Z")
        ));
        assert!(is_signed(
            &pairs,
            "topsecret",
            demands,
            at("2031-05-01T10:05:31Z")
        ));
    }

    #[test]
    fn the_last_value_of_a_repeated_name_counts() {
        assert_eq!(
            pairs(&["a=1&b&a=2"]),
            vec![("a".into(), "2".into()), ("b".into(), String::new())]
        );
    }
}
