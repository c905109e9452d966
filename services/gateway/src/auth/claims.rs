//! What a token must claim. By the configuration alone: what it does not ask for is not looked at (no audiences configured:
//! any audience), and what it asks for is refused unless it is there.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::{ClaimHolds, Jwt, RequiredClaim};
use serde_json::{Map, Value};

use super::Fault;

/// The demands of one configuration.
pub(super) struct Demands {
    issuer: String,
    audiences: Vec<String>,
    required: Vec<RequiredClaim>,
    skew: Duration,
}

impl Demands {
    /// Those of a configuration.
    pub(super) fn new(jwt: &Jwt) -> Self {
        Self {
            issuer: jwt.issuer.clone(),
            audiences: jwt.audiences.clone(),
            required: jwt.required_claims.clone(),
            skew: jwt.clock_skew,
        }
    }

    /// Whether the token is for us and for now. Returns until when it is. Asked before the signature is checked, since a token
    /// that is good for nothing is not worth that.
    pub(super) fn is_ours(&self, claims: &Map<String, Value>, now: SystemTime) -> Result<SystemTime, Fault> {
        if claims.get("iss").and_then(Value::as_str) != Some(&*self.issuer) {
            return Err(Fault::Issuer);
        }
        if !self.audiences.is_empty() && !self.is_for_us(claims.get("aud")) {
            return Err(Fault::Audience);
        }
        let now_s = now.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let skew_s = self.skew.as_secs_f64();
        let expires_s = time(claims, "exp")?.ok_or(Fault::Time("exp"))?;
        if now_s >= expires_s + skew_s {
            return Err(Fault::Expired);
        }
        for name in ["nbf", "iat"] {
            if time(claims, name)?.is_some_and(|begins_s| now_s + skew_s < begins_s) {
                return Err(Fault::NotYet);
            }
        }
        let left_s = (expires_s + skew_s - now_s).min(LEFT_S_MAX);
        Ok(now + Duration::from_secs_f64(left_s))
    }

    /// Whether the configuration admits who has these claims. Asked last: a stranger learns nothing of it.
    pub(super) fn admit(&self, claims: &Map<String, Value>) -> Result<(), Fault> {
        let missing = self.required.iter().find(|required| !holds(required, claims.get(&required.name)));
        missing.map_or(Ok(()), |required| Err(Fault::Claim(required.name.as_str().into())))
    }

    fn is_for_us(&self, audience: Option<&Value>) -> bool {
        let is_ours = |value: &Value| value.as_str().is_some_and(|text| self.audiences.iter().any(|own| own == text));
        match audience {
            Some(Value::Array(several)) => several.iter().any(is_ours),
            Some(one) => is_ours(one),
            None => false,
        }
    }
}

/// Time left that is reckoned with, in seconds: a day, and far less than a time can hold.
const LEFT_S_MAX: f64 = 86_400.0;

/// Seconds since 1970, fractions allowed (RFC 7519, 2). What is there must be a number.
fn time(claims: &Map<String, Value>, name: &'static str) -> Result<Option<f64>, Fault> {
    match claims.get(name) {
        None => Ok(None),
        Some(value) => value.as_f64().map(Some).ok_or(Fault::Time(name)),
    }
}

fn holds(required: &RequiredClaim, claim: Option<&Value>) -> bool {
    let admits = |value: &Value| value.as_str().is_some_and(|text| required.values.iter().any(|value| value == text));
    match (required.holds, claim) {
        (ClaimHolds::Text, Some(value)) => admits(value),
        (ClaimHolds::Texts, Some(Value::Array(several))) => several.iter().any(admits),
        (ClaimHolds::Texts, Some(_)) | (_, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn demands(audiences: &[&str], required: &[(&str, ClaimHolds, &[&str])]) -> Demands {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        let required = required.iter().map(|(name, holds, values)| RequiredClaim {
            name: (*name).to_owned(),
            holds: *holds,
            values: texts(values),
        });
        Demands {
            issuer: "https://idp".into(),
            audiences: texts(audiences),
            required: required.collect(),
            skew: Duration::from_secs(60),
        }
    }

    const NOW_S: u64 = 1_800_000_000;

    fn asked(demands: &Demands, claims: &Value) -> Result<(), Fault> {
        let now = UNIX_EPOCH + Duration::from_secs(NOW_S);
        let until = demands.is_ours(claims.as_object().unwrap(), now)?;
        assert!(until > now);
        demands.admit(claims.as_object().unwrap())
    }

    fn with(extra: Value) -> Value {
        let mut claims = json!({"iss": "https://idp", "exp": NOW_S + 100});
        claims.as_object_mut().unwrap().append(&mut extra.as_object().unwrap().clone());
        claims
    }

    #[test]
    fn i03_an_audience_is_checked_only_where_one_is_configured() {
        let (any, x) = (demands(&[], &[]), demands(&["x"], &[]));
        for audience in [json!({"aud": "x"}), json!({"aud": ["x", "y"]}), json!({})] {
            assert_eq!(asked(&any, &with(audience)), Ok(()));
        }
        assert_eq!(asked(&x, &with(json!({"aud": "x"}))), Ok(()));
        assert_eq!(asked(&x, &with(json!({"aud": ["y", "x"]}))), Ok(()));
        for audience in
            [json!({}), json!({"aud": []}), json!({"aud": "y"}), json!({"aud": {"x": 1}}), json!({"aud": "xx"})]
        {
            assert_eq!(asked(&x, &with(audience)), Err(Fault::Audience));
        }
        let slash = with(json!({"iss": "https://idp/"}));
        assert_eq!(asked(&any, &slash), Err(Fault::Issuer), "exactly as configured");
        assert_eq!(asked(&any, &json!({"exp": NOW_S + 100})), Err(Fault::Issuer));
    }

    #[test]
    fn i06_clocks_may_differ_a_little_and_every_token_ends() {
        let any = demands(&[], &[]);
        for good in [
            json!({"nbf": NOW_S + 4}),
            json!({"iat": NOW_S + 4}),
            json!({"exp": NOW_S - 4}),
            json!({"exp": NOW_S - 59}),
            json!({"nbf": NOW_S + 60, "iat": NOW_S + 60}),
            json!({"exp": 1e18, "nbf": -1e18, "iat": 1_700_000_000.5}),
        ] {
            assert_eq!(asked(&any, &with(good.clone())), Ok(()), "{good}");
        }
        for (bad, fault) in [
            (json!({"exp": NOW_S - 120}), Fault::Expired),
            (json!({"exp": NOW_S - 60}), Fault::Expired),
            (json!({"exp": (NOW_S + 100).to_string()}), Fault::Time("exp")),
            (json!({"exp": null}), Fault::Time("exp")),
            (json!({"exp": -1e300}), Fault::Expired),
            (json!({"nbf": NOW_S + 61}), Fault::NotYet),
            (json!({"iat": NOW_S + 61}), Fault::NotYet),
            (json!({"nbf": "0"}), Fault::Time("nbf")),
        ] {
            assert_eq!(asked(&any, &with(bad.clone())), Err(fault), "{bad}");
        }
        assert_eq!(asked(&any, &json!({"iss": "https://idp"})), Err(Fault::Time("exp")), "none at all");
    }

    #[test]
    fn required_claims_refuse_what_they_do_not_admit() {
        let both = demands(
            &[],
            &[("tier", ClaimHolds::Text, &["gold", "silver"]), ("groups", ClaimHolds::Texts, &["ml", "ops"])],
        );
        assert_eq!(asked(&both, &with(json!({"tier": "gold", "groups": ["x", "ops"]}))), Ok(()));
        for (claims, name) in [
            (json!({"groups": ["ml"]}), "tier"),
            (json!({"tier": "bronze", "groups": ["ml"]}), "tier"),
            (json!({"tier": ["gold"], "groups": ["ml"]}), "tier"),
            (json!({"tier": "GOLD", "groups": ["ml"]}), "tier"),
            (json!({"tier": "gold"}), "groups"),
            (json!({"tier": "gold", "groups": "ml"}), "groups"),
            (json!({"tier": "gold", "groups": []}), "groups"),
            (json!({"tier": "gold", "groups": [["ml"]]}), "groups"),
        ] {
            assert_eq!(asked(&both, &with(claims.clone())), Err(Fault::Claim(name.into())), "{claims}");
        }
    }
}
