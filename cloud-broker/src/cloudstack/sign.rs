//! Signing of calls. Pure.
//!
//! Decides the string that is signed, the signature, and the body that is sent. Facts: names are sorted as sent, values
//! are encoded as Java's form encoder does with `%20` for blanks, the whole string is lowered, HMAC-SHA1, base64. Every
//! parameter is part of it except the signature.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha1::Sha1;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::types::Timestamp;

/// The keys of a `CloudStack` user. Not printable.
#[derive(Clone)]
pub struct ApiKeys {
    /// Names the user.
    pub api_key: SecretString,
    /// Signs the calls.
    pub secret_key: SecretString,
}

impl ApiKeys {
    /// Whether both are the same as others.
    pub fn are(&self, other: &Self) -> bool {
        self.api_key.expose_secret() == other.api_key.expose_secret()
            && self.secret_key.expose_secret() == other.secret_key.expose_secret()
    }
}

impl std::fmt::Debug for ApiKeys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ApiKeys(..)")
    }
}

/// The form body of a signed call that is valid until a point in time by the server's clock.
pub(super) fn signed_body(
    command: &str,
    params: &[(String, String)],
    keys: &ApiKeys,
    expires: Timestamp,
) -> String {
    let mut all: Vec<(&str, &str)> = params
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let expires = expires.to_string();
    all.extend([
        ("command", command),
        ("apikey", keys.api_key.expose_secret()),
        ("response", "json"),
        ("signatureversion", "3"),
        ("expires", expires.as_str()),
    ]);
    let signature = signature(&all, &keys.secret_key);
    Serializer::new(String::new())
        .extend_pairs(all)
        .append_pair("signature", &signature)
        .finish()
}

fn signature(params: &[(&str, &str)], secret: &SecretString) -> String {
    // HMAC takes keys of any length, so the empty branch is never taken.
    let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(secret.expose_secret().as_bytes()) else {
        return String::new();
    };
    mac.update(string_to_sign(params).as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

fn string_to_sign(params: &[(&str, &str)]) -> String {
    let mut params = params.to_vec();
    params.sort_unstable();
    let pairs: Vec<String> = params
        .iter()
        .map(|(name, value)| format!("{name}={}", encoded(value)))
        .collect();
    pairs.join("&").to_lowercase()
}

fn encoded(value: &str) -> String {
    byte_serialize(value.as_bytes())
        .collect::<String>()
        .replace('+', "%20")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn keys() -> ApiKeys {
        ApiKeys {
            api_key: "AKEY".into(),
            secret_key: "topsecret".into(),
        }
    }

    const VECTOR: [(&str, &str); 6] = [
        ("apikey", "AKEY"),
        ("command", "listZones"),
        ("expires", "2031-05-01T10:20:30Z"),
        ("name", "zone *[a]~"),
        ("response", "json"),
        ("signatureversion", "3"),
    ];

    #[test]
    fn the_worked_example_gives_the_known_string_and_signature() {
        assert_eq!(
            string_to_sign(&VECTOR),
            "apikey=akey&command=listzones&expires=2031-05-01t10%3a20%3a30z&name=zone%20*%5ba%5d%7e&response=json&signatureversion=3"
        );
        assert_eq!(
            signature(&VECTOR, &keys().secret_key),
            "rxmRURpnjLsoLfwDfjWaxL+glFc="
        );
    }

    #[test]
    fn the_body_carries_the_signature_of_everything_else() {
        let expires = Timestamp::parse("2031-05-01T10:20:30Z").unwrap();
        let body = signed_body(
            "listZones",
            &[("name".into(), "zone *[a]~".into())],
            &keys(),
            expires,
        );
        let pairs: Vec<(String, String)> = url::form_urlencoded::parse(body.as_bytes())
            .into_owned()
            .collect();
        let signature = pairs.iter().find(|(name, _)| name == "signature").unwrap();
        assert_eq!(signature.1, "rxmRURpnjLsoLfwDfjWaxL+glFc=");
        assert_eq!(pairs.len(), VECTOR.len() + 1);
    }

    #[rstest]
    #[case::blank("a b", "a%20b")]
    #[case::star_stays("*", "*")]
    #[case::tilde("~", "%7E")]
    #[case::marks("!'()&+=/", "%21%27%28%29%26%2B%3D%2F")]
    #[case::accent("é", "%C3%A9")]
    #[case::unreserved("Az09.-_", "Az09.-_")]
    fn values_are_encoded_as_the_server_encodes_them(#[case] value: &str, #[case] wire: &str) {
        assert_eq!(encoded(value), wire);
    }

    #[test]
    fn keys_have_no_printable_form() {
        assert_eq!(format!("{:?}", keys()), "ApiKeys(..)");
    }

    proptest! {
        #[test]
        fn the_order_of_parameters_does_not_matter(
            params in prop::collection::btree_map("[a-z]{1,8}(\\[[0-9]\\]\\.[a-z]{1,4})?", ".{0,12}", 0..8),
            turn in 0usize..8,
        ) {
            let sorted: Vec<(&str, &str)> = params.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let mut turned = sorted.clone();
            let len = turned.len().max(1);
            turned.rotate_left(turn % len);
            prop_assert_eq!(string_to_sign(&sorted), string_to_sign(&turned));
        }

        #[test]
        fn the_signed_string_is_lower_case_and_pure_in_its_values(value in "\\PC{0,40}") {
            let signed = string_to_sign(&[("name", &value)]);
            let value = signed.strip_prefix("name=").unwrap();
            let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_*%".contains(&byte);
            prop_assert!(value.bytes().all(legal), "{}", value);
        }

        #[test]
        fn the_body_decodes_to_what_was_signed(value in "\\PC{0,40}") {
            let expires = Timestamp::from_seconds(1_900_000_000);
            let body = signed_body("listZones", &[("name".into(), value.clone())], &keys(), expires);
            let pairs: Vec<(String, String)> = url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
            let sent: Vec<(&str, &str)> = pairs
                .iter().filter(|(n, _)| n != "signature").map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let signed = &pairs.iter().find(|(n, _)| n == "signature").unwrap().1;
            prop_assert_eq!(&signature(&sent, &keys().secret_key), signed);
        }
    }
}
