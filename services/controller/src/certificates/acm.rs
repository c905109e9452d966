//! AWS Certificate Manager, as far as it is needed. The one place that knows AWS.

#[cfg(test)]
mod tests;

use std::time::Duration;

use aws_config::{BehaviorVersion, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_acm::{
    Client,
    error::{DisplayErrorContext, SdkError},
    operation::delete_certificate::DeleteCertificateError,
    primitives::Blob,
    types::Tag,
};
use aws_smithy_http_client::{
    Builder,
    tls::{Provider, rustls_provider::CryptoMode},
};

use super::Issued;

/// One try. The SDK itself would wait for an answer for ever.
const TRY_MAX: Duration = Duration::from_secs(10);
/// All tries of a call.
const CALL_MAX: Duration = Duration::from_secs(30);
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Tries of a call, the first included.
const TRIES: u32 = 3;
/// Pages of certificates that are looked through for one that an earlier run left.
const PAGES_MAX: usize = 20;

/// On every AWS object of the product.
const CREATED_BY: (&str, &str) = ("CreatedBy", "HyperPodInference");
/// The uid of the config that a certificate is for.
const FOR_CONFIG: &str = "InferenceGatewayConfig";

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcmError {
    /// A load balancer still has it.
    #[error("the certificate is still in use, most likely by a load balancer that is being removed")]
    InUse,
    /// Anything else, with the SDK's words.
    #[error("AWS Certificate Manager: {0}")]
    Failed(String),
}

/// A client.
#[derive(Clone, Debug)]
pub struct Acm(Client);

impl Acm {
    /// For the region and with the credentials of the environment. They are asked for when a call is made.
    pub async fn from_environment() -> Self {
        let config = aws_config::defaults(BehaviorVersion::latest())
            .http_client(Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https())
            .timeout_config(timeouts())
            .retry_config(RetryConfig::standard().with_max_attempts(TRIES))
            .load()
            .await;
        Self(Client::new(&config))
    }

    /// Imports a certificate; under `arn` in the place of what is there.
    ///
    /// # Errors
    /// When ACM does not take it.
    pub async fn import(&self, arn: Option<&str>, issued: &Issued, config_uid: &str) -> Result<String, AcmError> {
        let mut call = self
            .0
            .import_certificate()
            .set_certificate_arn(arn.map(str::to_owned))
            .certificate(Blob::new(issued.certificate.as_bytes()))
            .private_key(Blob::new(issued.key.as_bytes()))
            .set_certificate_chain(issued.chain.as_ref().map(|chain| Blob::new(chain.as_bytes())));
        // Tags cannot be given again.
        if arn.is_none() {
            call = call.tags(tag(CREATED_BY.0, CREATED_BY.1)?).tags(tag(FOR_CONFIG, config_uid)?);
        }
        let imported = call.send().await.map_err(failed)?;
        imported.certificate_arn.ok_or_else(|| AcmError::Failed("the answer names no certificate".into()))
    }

    /// A certificate that was imported for the config and never noted: the controller was ended between the two.
    ///
    /// # Errors
    /// When ACM does not answer.
    pub async fn find(&self, domain: &str, config_uid: &str) -> Result<Option<String>, AcmError> {
        let mut next = None;
        for _ in 0..PAGES_MAX {
            let page = self.0.list_certificates().set_next_token(next.take()).send().await.map_err(failed)?;
            for summary in page.certificate_summary_list() {
                let Some(arn) = summary.certificate_arn() else { continue };
                if summary.domain_name() == Some(domain) && self.is_for(arn, config_uid).await? {
                    return Ok(Some(arn.to_owned()));
                }
            }
            next = page.next_token;
            if next.is_none() {
                break;
            }
        }
        Ok(None)
    }

    async fn is_for(&self, arn: &str, config_uid: &str) -> Result<bool, AcmError> {
        let tags = self.0.list_tags_for_certificate().certificate_arn(arn).send().await.map_err(failed)?;
        Ok(tags.tags().iter().any(|tag| tag.key() == FOR_CONFIG && tag.value() == Some(config_uid)))
    }

    /// Deletes a certificate. One that is not there is deleted.
    ///
    /// # Errors
    /// While a load balancer has it, and when ACM does not answer.
    pub async fn delete(&self, arn: &str) -> Result<(), AcmError> {
        match self.0.delete_certificate().certificate_arn(arn).send().await {
            Ok(_) => Ok(()),
            Err(error) => match error.as_service_error() {
                Some(DeleteCertificateError::ResourceNotFoundException(_)) => Ok(()),
                Some(DeleteCertificateError::ResourceInUseException(_)) => Err(AcmError::InUse),
                Some(_) | None => Err(failed(error)),
            },
        }
    }
}

fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_MAX)
        .operation_attempt_timeout(TRY_MAX)
        .operation_timeout(CALL_MAX)
        .build()
}

fn tag(key: &str, value: &str) -> Result<Tag, AcmError> {
    Tag::builder().key(key).value(value).build().map_err(|error| AcmError::Failed(error.to_string()))
}

fn failed<E, R>(error: SdkError<E, R>) -> AcmError
where
    SdkError<E, R>: std::error::Error,
{
    AcmError::Failed(DisplayErrorContext(error).to_string())
}
