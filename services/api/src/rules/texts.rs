//! What rules say that both a file and a cluster are refused for: one text each, so that both say the same.

/// Operators know this one word for word.
pub(crate) const BBR_FOR_SEVERAL: &str = "bbr must be enabled when more than one scheduler is defined";
pub(crate) const MODEL_NAME_UNIQUE: &str = "modelName must be unique";
pub(crate) const WEIGHTS_OR_CONFIG_MAP: &str = "weights and configMapRef exclude each other";
pub(crate) const LRU_ONLY_LLM_D: &str = "weights.lru only with `scheduler: llm-d`";
pub(crate) const ACM_OR_SECRET: &str = "acmArn and secretRef exclude each other";
pub(crate) const JWT_OR_KEYS: &str = "must have at least one of `jwt` and `apiKeys`";
pub(crate) const TOKENS_RESTRICTED: &str = "must have at least one of `audiences` and `requiredClaims`";
pub(crate) const NEEDS_AUTH: &str = "needs `spec.auth`: without it no token is read";
pub(crate) const LIMIT_HAS_A_NUMBER: &str = "must have at least one of requestsPerMinute, tokensPerMinute, \
     inputTokensPerMinute, outputTokensPerMinute, concurrentRequests";
pub(crate) const LIMIT_HAS_ONE_KEY: &str = "must have exactly one of `header`, `claim`, `authorization`";
pub(crate) const AUTHORIZATION_IS_TRUE: &str = "must be true, or not there";
