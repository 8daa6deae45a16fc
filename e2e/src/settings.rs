//! Where things lie and what the environment asks for. Nothing else in this package reads either.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;

/// The environment variables that tests, demo and benchmarks obey.
#[derive(Debug, Clone, Parser)]
pub struct Settings {
    /// Folder with the binaries under test. Default: beside the running program.
    #[arg(long, env = "E2E_BIN_DIR")]
    pub bin_dir: Option<PathBuf>,
    /// Folder with a real CloudStack and the controllers to compare with. Default: `shared` beside the project.
    #[arg(long, env = "E2E_SHARED")]
    pub shared: Option<PathBuf>,
    /// A CloudStack that already runs. Its keys must belong to an account with the networks the scenarios name.
    #[arg(long, env = "CLOUDSTACK_API_URL")]
    pub cloudstack_api_url: Option<String>,
    /// API key for that CloudStack.
    #[arg(long, env = "CLOUDSTACK_API_KEY", hide_env_values = true)]
    pub cloudstack_api_key: Option<String>,
    /// Secret key for that CloudStack.
    #[arg(long, env = "CLOUDSTACK_SECRET_KEY", hide_env_values = true)]
    pub cloudstack_secret_key: Option<String>,
    /// State folder of a CloudStack started by `shared/cloudstack/up`; without it one is started for the run.
    #[arg(long, env = "CLOUDSTACK_STATE")]
    pub cloudstack_state: Option<PathBuf>,
    /// First port of a CloudStack started for the run.
    #[arg(long, env = "E2E_CLOUDSTACK_PORT", default_value_t = 18580)]
    pub cloudstack_port: u16,
    /// How many scenarios run side by side, each with a control plane of its own.
    #[arg(long, env = "E2E_WORKERS", default_value_t = 2)]
    pub workers: usize,
    /// Everything that takes long, not only a sample of it.
    #[arg(long, env = "E2E_FULL", num_args = 0..=1, default_missing_value = "1", default_value = "0")]
    pub full: String,
    /// Folder for logs and state. Default: `target/e2e`.
    #[arg(long, env = "E2E_DIR")]
    pub dir: Option<PathBuf>,
}

impl Settings {
    /// What the environment says, everything else at its default.
    pub fn from_environment() -> Result<Self> {
        Ok(Self::try_parse_from(["e2e"])?)
    }

    /// Whether everything that takes long is wanted.
    pub fn is_full(&self) -> bool {
        !matches!(self.full.as_str(), "" | "0" | "false")
    }

    /// The root of the project.
    pub fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .unwrap_or(Path::new("."))
    }

    /// Folder for logs and state.
    pub fn dir(&self) -> PathBuf {
        self.dir
            .clone()
            .unwrap_or_else(|| Self::root().join("target/e2e"))
    }

    /// `shared/NAME`, if it is there.
    pub fn shared(&self, name: &str) -> Option<PathBuf> {
        let base = self
            .shared
            .clone()
            .or_else(|| Some(Self::root().parent()?.join("shared")))?;
        let path = base.join(name);
        path.exists().then_some(path)
    }

    /// One of the binaries under test; it must have been built.
    pub fn binary(&self, name: &str) -> Result<PathBuf> {
        let dir = match &self.bin_dir {
            Some(dir) => dir.clone(),
            None => profile_dir()?,
        };
        let path = dir.join(name);
        ensure!(
            path.exists(),
            "{} is not built: cargo build -p {name}",
            path.display()
        );
        Ok(path)
    }
}

/// `target/debug` or `target/release`, whichever the running program was built into.
fn profile_dir() -> Result<PathBuf> {
    let me = std::env::current_exe().context("where this program lies")?;
    let dir = me.parent().context("folder of this program")?;
    let dir = if dir.ends_with("deps") {
        dir.parent().unwrap_or(dir)
    } else {
        dir
    };
    Ok(dir.to_path_buf())
}

/// A program on the PATH (or in the sbin folders, which a user's PATH often lacks).
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}
