//! Carrying out one step. Decides nothing: what is done was planned, what a failure means is for `run`.

use super::plan::{Answered, Step};
use super::turns::Turn;
use crate::cloudstack::types::{RuleId, TaggedResource};
use crate::cloudstack::{Api, ApiError, Command, CreateRule, Refusal};

/// Carries out a step and waits for its job.
pub(super) async fn apply(api: &Api, turn: Turn, step: &Step) -> Result<Answered, ApiError> {
    let mut answered = Answered::default();
    match step {
        Step::Associate { request, .. } => {
            let turn = match turn {
                Turn::Associate(turn) => turn,
                Turn::None | Turn::Release(_) => api.turn_to_associate().await,
            };
            let started = api.associate(&turn, request).await?;
            drop(turn);
            answered.address = Some(started.finished().await?);
        }
        Step::CreateRule {
            rule, check_network, ..
        } => return create_rule(api, rule, *check_network).await,
        Step::UpdateRule { rule, change, .. } => api.update_rule(rule, change).await?.finished().await?,
        Step::DeleteRule { rule, .. } => gone_is_fine(delete_rule(api, &turn, rule).await)?,
        Step::Assign { rule, machines, .. } => api.assign(rule, machines).await?.finished().await?,
        Step::Remove { rule, machines, .. } => api.remove(rule, machines).await?.finished().await?,
        Step::OpenFirewall { rule, .. } => {
            answered.firewall = Some(api.create_firewall_rule(rule).await?.finished().await?);
        }
        Step::CloseFirewall { rule, .. } => {
            gone_is_fine(finished(api.delete_firewall_rule(rule).await).await)?;
        }
        Step::AllowInAcl(item) => answered.acl = Some(api.create_acl_item(item).await?.finished().await?),
        Step::DropFromAcl { item, .. } => gone_is_fine(finished(api.delete_acl_item(item).await).await)?,
        Step::Tag { address, tag, .. } => {
            let resource = TaggedResource::Address(address.clone());
            api.create_tags(&resource, std::slice::from_ref(tag))
                .await?
                .finished()
                .await?;
        }
        Step::Untag { address, tag, .. } => {
            let resource = TaggedResource::Address(address.clone());
            api.delete_tags(&resource, std::slice::from_ref(tag))
                .await?
                .finished()
                .await?;
        }
        Step::Release { address, .. } => {
            let turn = match turn {
                Turn::Release(turn) => turn,
                Turn::None | Turn::Associate(_) => api.turn_to_release(address).await,
            };
            api.release(&turn).await?.finished().await?;
        }
    }
    Ok(answered)
}

/// In a VPC the server may put a rule into another network than was meant, so its result is waited for; elsewhere the address
/// decides, and there is nothing to wait for.
async fn create_rule(api: &Api, rule: &CreateRule, check_network: bool) -> Result<Answered, ApiError> {
    if !check_network {
        let id = api.create_rule_at_once(rule).await?.map(|id| id.to_string());
        return Ok(Answered {
            id,
            ..Answered::default()
        });
    }
    let made = api.create_rule(rule).await?.finished().await?;
    if made
        .network_id
        .as_ref()
        .is_some_and(|network| *network != rule.network)
    {
        // It serves nothing yet, and would serve the wrong machines.
        finished(api.delete_rule(&made.id).await).await?;
        let text =
            "the server made it for another network of the vpc, since the address carries rules for that one";
        let code = None;
        return Err(ApiError::Conflict(Refusal {
            command: Command::CreateLoadBalancerRule,
            code,
            text: text.to_owned(),
        }));
    }
    Ok(Answered {
        rule: Some(made),
        ..Answered::default()
    })
}

/// Who decided on what is on the address lets nobody else do so before the rule is gone.
async fn delete_rule(api: &Api, turn: &Turn, rule: &RuleId) -> Result<(), ApiError> {
    let started = match turn {
        Turn::Release(turn) => api.delete_rule_in_turn(turn, rule).await,
        Turn::None | Turn::Associate(_) => api.delete_rule(rule).await,
    };
    finished(started).await
}

async fn finished(started: Result<crate::cloudstack::Started<()>, ApiError>) -> Result<(), ApiError> {
    started?.finished().await
}

fn gone_is_fine(result: Result<(), ApiError>) -> Result<(), ApiError> {
    match result {
        Err(ApiError::Gone(_)) => Ok(()),
        other => other,
    }
}
