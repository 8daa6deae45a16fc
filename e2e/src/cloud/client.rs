//! A signed CloudStack client of the harness's own: it must not share a misunderstanding with the broker's.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha1::Sha1;

use crate::wait;

/// A caller's keys.
#[derive(Clone)]
pub struct Keys {
    /// API key.
    pub api: String,
    /// Secret key.
    pub secret: String,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

/// A caller of one API.
#[derive(Debug, Clone)]
pub struct Client {
    url: String,
    keys: Keys,
    http: reqwest::Client,
}

/// An answer that is an error.
#[derive(Debug)]
pub struct Refused {
    /// HTTP status, or the error code of a failed job.
    pub code: u64,
    /// CloudStack's text.
    pub text: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.text)
    }
}

impl std::error::Error for Refused {}

impl Client {
    /// A caller of the API at `url`.
    pub fn new(url: &str, keys: Keys) -> Result<Self> {
        let http = reqwest::Client::builder()
            .timeout(Duration::from_mins(1))
            .build()?;
        Ok(Self {
            url: url.to_owned(),
            keys,
            http,
        })
    }

    /// The keys it signs with.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// One call; the answer is what stands inside the envelope.
    pub async fn call(&self, command: &str, params: &[(&str, &str)]) -> Result<Value> {
        let mut all: BTreeMap<String, String> = params
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        all.insert("command".into(), command.into());
        all.insert("response".into(), "json".into());
        all.insert("apiKey".into(), self.keys.api.clone());
        let query = query(&all);
        let url = format!("{}?{query}&signature={}", self.url, encode(&self.sign(&query)?));
        let answer = self
            .http
            .get(url)
            .send()
            .await
            .with_context(|| command.to_owned())?;
        let status = answer.status();
        let body = answer.text().await?;
        let json: Value = serde_json::from_str(&body).with_context(|| format!("{command}: {body}"))?;
        let inner = json.as_object().and_then(|envelope| envelope.values().next());
        let inner = inner.with_context(|| format!("{command}: empty answer"))?.clone();
        if !status.is_success() || inner.get("errorcode").is_some() {
            let text = inner["errortext"].as_str().unwrap_or_default().to_owned();
            let refused = Refused {
                code: status.as_u16().into(),
                text,
            };
            return Err(anyhow::Error::new(refused).context(command.to_owned()));
        }
        Ok(inner)
    }

    /// A call that starts a job, and the job's result.
    pub async fn run(&self, command: &str, params: &[(&str, &str)]) -> Result<Value> {
        let started = self.call(command, params).await?;
        let Some(job) = started["jobid"].as_str() else {
            return Ok(started);
        };
        let result = wait::until(Duration::from_mins(2), format!("job of {command}"), || async {
            let answer = self.call("queryAsyncJobResult", &[("jobid", job)]).await?;
            Ok((answer["jobstatus"].as_u64() != Some(0)).then_some(answer))
        })
        .await?;
        if result["jobstatus"].as_u64() != Some(1) {
            bail!("{command}: {}", result["jobresult"]["errortext"]);
        }
        Ok(result["jobresult"].clone())
    }

    /// All entries of a list command.
    pub async fn list(&self, command: &str, kind: &str, params: &[(&str, &str)]) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        for page in 1.. {
            let number = page.to_string();
            let mut params = params.to_vec();
            params.extend([("page", number.as_str()), ("pagesize", "500")]);
            let answer = self.call(command, &params).await?;
            let items = answer[kind].as_array().cloned().unwrap_or_default();
            let full = items.len() == 500;
            all.extend(items);
            if !full {
                break;
            }
        }
        Ok(all)
    }

    fn sign(&self, query: &str) -> Result<String> {
        // Sorted by name, lower-cased as a whole, HMAC-SHA1, base64.
        let mut mac = Hmac::<Sha1>::new_from_slice(self.keys.secret.as_bytes())?;
        mac.update(query.to_lowercase().as_bytes());
        Ok(base64::engine::general_purpose::STANDARD.encode(mac.finalize().into_bytes()))
    }
}

fn query(params: &BTreeMap<String, String>) -> String {
    let mut sorted: Vec<_> = params.iter().collect();
    sorted.sort_by_key(|(name, _)| name.to_lowercase());
    let parts: Vec<_> = sorted
        .iter()
        .map(|(name, value)| format!("{name}={}", encode(value)))
        .collect();
    parts.join("&")
}

fn encode(value: &str) -> String {
    value.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String can't fail.
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}
