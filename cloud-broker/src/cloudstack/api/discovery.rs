//! What the server is and what the caller may do.

use super::Api;
use super::params::Params;
use crate::cloudstack::types::{ApiCommand, Capabilities, Fields, Project, ProjectId, Zone};
use crate::cloudstack::{ApiError, Command, Listing};

impl Api {
    /// Version and limits of the server. Roles made for Kubernetes clusters may not ask this: `Denied` is normal.
    pub async fn capabilities(&self) -> Result<Capabilities, ApiError> {
        let answer = self.read(Command::ListCapabilities, Params::new()).await?;
        Ok(Capabilities::parse(Fields::of(
            answer.get("capability").unwrap_or(&answer),
        )))
    }

    /// Every command that the caller's role may use, with its parameters. May be `Denied`.
    pub async fn commands(&self) -> Result<Listing<ApiCommand>, ApiError> {
        self.list(Command::ListApis, Params::new()).await
    }

    /// One command with the parameters that this server understands; `None` if the caller may not use it.
    pub async fn describe_command(&self, command: Command) -> Result<Option<ApiCommand>, ApiError> {
        let listing = self
            .list::<ApiCommand>(Command::ListApis, Params::new().with("name", command.name()))
            .await;
        match listing {
            Ok(listing) => Ok(listing
                .into_items()
                .into_iter()
                .find(|found| found.name == command.name())),
            // A command that is unknown or not allowed is an internal error to the server.
            Err(ApiError::Rejected(refusal)) if refusal.code == Some(530) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The zones that the caller may use. May be `Denied`.
    pub async fn zones(&self) -> Result<Listing<Zone>, ApiError> {
        self.list(Command::ListZones, Params::new()).await
    }

    /// The projects that the caller is a member of. May be `Denied`.
    pub async fn projects(&self) -> Result<Listing<Project>, ApiError> {
        self.list(Command::ListProjects, Params::new().with("details", "min"))
            .await
    }

    /// A project; `None` if the caller is no member. May be `Denied`.
    pub async fn find_project(&self, id: &ProjectId) -> Result<Option<Project>, ApiError> {
        self.find(
            Command::ListProjects,
            Params::new().with("id", id).with("details", "min"),
        )
        .await
    }
}
