//! A real management server: one that already runs (address and keys in the environment), or the one whose programs lie
//! in `shared/cloudstack`, started for the run and stopped after it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

use super::Keys;
use crate::settings::Settings;

/// A management server that answers.
#[derive(Debug)]
pub struct Server {
    /// Its API.
    pub url: String,
    /// Keys of a user with the networks that the scenarios name.
    pub keys: Keys,
    /// Where its programs and its state are, if this run may control it.
    control: Option<Control>,
}

#[derive(Debug)]
struct Control {
    programs: PathBuf,
    state: PathBuf,
    started: bool,
}

/// A server, or why there is none.
#[derive(Debug)]
pub enum Found {
    /// It answers.
    Server(Server),
    /// The line to print beside what is skipped.
    Missing(String),
}

impl Server {
    /// Finds or starts one.
    pub async fn find(settings: &Settings) -> Result<Found> {
        if let Some(url) = &settings.cloudstack_api_url {
            let api = settings
                .cloudstack_api_key
                .clone()
                .context("CLOUDSTACK_API_KEY is not set")?;
            let secret = settings
                .cloudstack_secret_key
                .clone()
                .context("CLOUDSTACK_SECRET_KEY is not set")?;
            let keys = Keys { api, secret };
            return Ok(Found::Server(Self {
                url: url.clone(),
                keys,
                control: None,
            }));
        }
        let Some(programs) = settings.shared("cloudstack") else {
            let why = "no real CloudStack: CLOUDSTACK_API_URL is not set, and E2E_SHARED has no cloudstack";
            return Ok(Found::Missing(why.to_owned()));
        };
        let given = settings.cloudstack_state.clone();
        let state = given.clone().unwrap_or_else(|| settings.dir().join("cloudstack"));
        std::fs::create_dir_all(&state)?;
        let port = settings.cloudstack_port.to_string();
        let mut args = vec!["--state", path(&state)?];
        if given.is_none() {
            args.extend(["--port", port.as_str()]);
        }
        let (code, out) = run(&programs.join("up"), &args).await?;
        match code {
            0 => {}
            3 => return Ok(Found::Missing(format!("no real CloudStack: {}", last_line(&out)))),
            _ => bail!("cloudstack/up ended with {code}:\n{out}"),
        }
        let env = exports(&std::fs::read_to_string(state.join("env.sh"))?);
        let value = |name: &str| {
            env.get(name)
                .cloned()
                .with_context(|| format!("env.sh lacks {name}"))
        };
        let keys = Keys {
            api: value("CLOUDSTACK_API_KEY")?,
            secret: value("CLOUDSTACK_SECRET_KEY")?,
        };
        let url = value("CLOUDSTACK_API_URL")?;
        let control = Some(Control {
            programs,
            state,
            started: given.is_none(),
        });
        Ok(Found::Server(Self { url, keys, control }))
    }

    /// Back to the state before the first scenario, after one that failed or destroyed something.
    pub async fn reset(&self) -> Result<()> {
        let Some(control) = &self.control else {
            return Ok(());
        };
        let args = ["--state", path(&control.state)?];
        let (code, out) = run(&control.programs.join("reset"), &args).await?;
        if code != 0 {
            bail!("cloudstack/reset ended with {code}:\n{out}");
        }
        Ok(())
    }

    /// Stops it, if this run started it.
    pub async fn down(&self) -> Result<()> {
        let Some(control) = self.control.as_ref().filter(|control| control.started) else {
            return Ok(());
        };
        run(
            &control.programs.join("down"),
            &["--state", path(&control.state)?],
        )
        .await?;
        Ok(())
    }
}

async fn run(program: &Path, args: &[&str]) -> Result<(i32, String)> {
    let out = Command::new(program)
        .args(args)
        .stdin(std::process::Stdio::null())
        .output()
        .await;
    let out = out.with_context(|| format!("running {}", program.display()))?;
    let text = [out.stdout, out.stderr].concat();
    Ok((
        out.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

/// The variables of a line `export A=1 B=2`.
fn exports(text: &str) -> HashMap<String, String> {
    let words = text.split_whitespace().filter(|word| *word != "export");
    words
        .filter_map(|word| word.split_once('='))
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .collect()
}

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or("it did not say why")
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exported_variables_are_read_from_one_line() {
        let env = exports("export A=http://x/?a=b B=2\n");
        assert_eq!(env.get("A").map(String::as_str), Some("http://x/?a=b"));
        assert_eq!(env.get("B").map(String::as_str), Some("2"));
    }
}
