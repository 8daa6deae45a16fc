//! Resource tags. Roles made for Kubernetes clusters may use none of these.

use super::params::Params;
use super::{Api, Started};
use crate::cloudstack::types::{Tag, TaggedResource};
use crate::cloudstack::{ApiError, Command, Listing};

impl Api {
    /// The tags of a resource. May be `Denied`.
    pub async fn tags(&self, resource: &TaggedResource) -> Result<Listing<Tag>, ApiError> {
        let params = Params::new()
            .with("resourceid", resource.resource_id())
            .with("resourcetype", resource.resource_type());
        self.list(Command::ListTags, params).await
    }

    /// Writes tags: all of them or, if one of the keys is there already, none. May be `Denied`.
    pub async fn create_tags(
        &self,
        resource: &TaggedResource,
        tags: &[Tag],
    ) -> Result<Started<()>, ApiError> {
        self.change_tags(Command::CreateTags, resource, tags).await
    }

    /// Removes tags with these keys and values; the job fails if none of them is there. May be `Denied`.
    pub async fn delete_tags(
        &self,
        resource: &TaggedResource,
        tags: &[Tag],
    ) -> Result<Started<()>, ApiError> {
        self.change_tags(Command::DeleteTags, resource, tags).await
    }

    async fn change_tags(
        &self,
        command: Command,
        resource: &TaggedResource,
        tags: &[Tag],
    ) -> Result<Started<()>, ApiError> {
        if tags.is_empty() {
            // To a server no tag means all tags.
            return Err(Self::never_sent(command, "the list of tags is empty"));
        }
        let mut params = Params::new()
            .with("resourceids", resource.resource_id())
            .with("resourcetype", resource.resource_type());
        for (index, tag) in tags.iter().enumerate() {
            params = params
                .with(&format!("tags[{index}].key"), &tag.key)
                .with(&format!("tags[{index}].value"), &tag.value);
        }
        self.start(command, params).send().await
    }
}
