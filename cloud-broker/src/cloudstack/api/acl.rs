//! Network ACL lists and their items.

use super::params::Params;
use super::{Api, FirewallProtocol, Started};
use crate::cloudstack::types::{
    AclItemId, AclListId, CidrList, NetworkAclItem, NetworkAclList, PortRange, VpcId,
};
use crate::cloudstack::{ApiError, Command, Listing};

/// An ingress item that allows, to make. Servers don't notice duplicates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateAclItem {
    /// The list; the two default ones can't be changed.
    pub list: AclListId,
    /// Its place, at least 1 and not taken. (Without one it would go behind a deny-all.)
    pub number: u32,
    /// What for.
    pub protocol: FirewallProtocol,
    /// Which ports.
    pub ports: PortRange,
    /// For whom; never empty: that would be nobody.
    pub sources: CidrList,
    /// Free text; at most 255 characters.
    pub reason: String,
}

impl Api {
    /// ACL lists of a VPC; the two default ones are among them. May be `Denied`.
    pub async fn acl_lists(&self, vpc: &VpcId) -> Result<Listing<NetworkAclList>, ApiError> {
        self.list(Command::ListNetworkAclLists, Params::new().with("vpcid", vpc))
            .await
    }

    /// Items of an ACL list.
    pub async fn acl_items(&self, list: &AclListId) -> Result<Listing<NetworkAclItem>, ApiError> {
        self.list(Command::ListNetworkAcls, Params::new().with("aclid", list))
            .await
    }

    /// Items of all ACL lists of the account's or project's VPCs, and of the two default lists.
    pub async fn all_acl_items(&self) -> Result<Listing<NetworkAclItem>, ApiError> {
        self.list(Command::ListNetworkAcls, Params::new()).await
    }

    /// Makes an item; `Rejected` if the number is taken.
    pub async fn create_acl_item(&self, item: &CreateAclItem) -> Result<Started<NetworkAclItem>, ApiError> {
        if item.sources.is_empty() {
            return Err(Self::never_sent(
                Command::CreateNetworkAcl,
                "the list of sources is empty, which is nobody",
            ));
        }
        let params = Params::new()
            .with("aclid", &item.list)
            .with("number", item.number)
            .with("protocol", item.protocol.as_str())
            .with("startport", item.ports.start)
            .with("endport", item.ports.end)
            .with("cidrlist", &item.sources)
            .with("traffictype", "ingress")
            .with("action", "allow")
            .with("reason", &item.reason);
        self.start(Command::CreateNetworkAcl, params).send().await
    }

    /// Changes the free text of an item; everything else stays.
    pub async fn update_acl_item_reason(
        &self,
        id: &AclItemId,
        reason: &str,
    ) -> Result<Started<()>, ApiError> {
        let params = Params::new().with("id", id).with("reason", reason);
        self.start(Command::UpdateNetworkAclItem, params).send().await
    }

    /// Deletes an item; `Gone` if there is none.
    pub async fn delete_acl_item(&self, id: &AclItemId) -> Result<Started<()>, ApiError> {
        self.start(Command::DeleteNetworkAcl, Params::new().with("id", id))
            .send()
            .await
    }
}
