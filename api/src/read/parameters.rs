//! The parameters of reads, for the description of the API. They are parsed by hand, so that errors name their field.

use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use utoipa::{IntoParams, ToSchema};

use crate::calendar::Unit;

/// The path of every read of a key.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path, which the router takes apart")]
pub(super) struct KeyPath {
    /// A declared namespace
    #[param(example = "l")]
    namespace: String,
    /// Percent-encoded as one segment, 1 to 2,048 bytes
    #[param(example = "abc", min_length = 1)]
    key: String,
}

/// How long a ranking is.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes a query, which is parsed by hand")]
pub(super) struct LimitParameter {
    /// Values or keys to list; 10,000 as CSV if left out
    #[param(minimum = 1, maximum = 10000, default = 10)]
    limit: Option<u32>,
}

/// With what counts are compared.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes a query, which is parsed by hand")]
pub(super) struct CompareParameter {
    /// An earlier period of as many buckets, pale behind those of a picture, and `before` of JSON and CSV.
    /// `before`: the one right before; `weekdays`: the newest with the same weekdays, for buckets of a day or less;
    /// `year`: as many that end a year before, of weeks 52 weeks before
    #[param(example = "before")]
    compare: Option<String>,
}

/// Which values are counted.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes a query, which is parsed by hand")]
pub(super) struct OnlyParameter {
    /// Only what was counted with this value of the subtotal `c`; likewise where.r and every declared one. A read that
    /// needs two of them needs a subtotal that crosses both
    #[param(rename = "where.c", example = "US")]
    only: Option<String>,
}

/// Whether filtered events are told.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes a query, which is parsed by hand")]
pub(super) struct FilteredParameter {
    /// With what rules kept from being counted, by bucket and by rule, and the sum of both (`gross`); not in pictures
    #[param(example = true)]
    filtered: Option<bool>,
}

/// Which keys of a namespace, and counts of which range.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes a query, which is parsed by hand")]
pub(super) struct KeysParameters {
    /// Text that the keys begin with, 1 to 2,048 bytes
    #[param(example = "ab")]
    prefix: Option<String>,
    /// Text that is anywhere in the keys, instead of `prefix`
    #[param(example = "news")]
    contains: Option<String>,
    /// `key`, `count` or `rising`
    #[param(example = "key", default = "key")]
    sort: Option<String>,
    /// The `next` of the answer before, with `sort=key`
    #[param(example = "abd")]
    page: Option<String>,
    /// With what `sort=rising` compares: `before`, `weekdays` or `year`, as counts do
    #[param(example = "before", default = "before")]
    compare: Option<String>,
    /// Keys to list; 10,000 as CSV if left out
    #[param(minimum = 1, maximum = 10000, default = 10)]
    limit: Option<u32>,
    #[param(schema_with = unit_names, required = false, example = "day")]
    unit: Option<String>,
    /// How many buckets up to the one that holds `to`; -1 for all that were counted, as where it and `from` are left
    /// out; 7 for `sort=rising`
    #[param(minimum = -1, maximum = 10000, example = 7)]
    units: Option<i64>,
    /// First time, or first date of the zone that is named beside it, instead of `units`
    #[param(example = "2012-03-10T00:00:00Z")]
    from: Option<String>,
    /// Last time, or last date; now if left out
    #[param(example = "2012-03-16T18:40:00Z")]
    to: Option<String>,
    /// IANA time zone
    #[param(example = "America/New_York", default = "UTC")]
    timezone: Option<String>,
    /// Hours from UTC instead of a zone, -12 to 14 in steps of 0.25
    #[param(minimum = -12, maximum = 14, multiple_of = 0.25, example = 5.5)]
    hour_offset: Option<f64>,
    /// The kept generation to read as it was
    #[param(example = 3)]
    as_of: Option<u64>,
}

/// Which buckets, in which zone.
#[derive(IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes a query, which is parsed by hand")]
pub(super) struct RangeParameters {
    #[param(schema_with = unit_names, required = false, example = "day")]
    unit: Option<String>,
    /// How many buckets up to the one that holds `to`; -1 for all that were counted; at most 10,000
    #[param(minimum = -1, maximum = 10000, example = 7, default = 7)]
    units: Option<i64>,
    /// First time, or first date of the zone that is named beside it, instead of `units`
    #[param(example = "2012-03-10T00:00:00Z")]
    from: Option<String>,
    /// Last time, or last date; now if left out
    #[param(example = "2012-03-16T18:40:00Z")]
    to: Option<String>,
    /// IANA time zone
    #[param(example = "America/New_York", default = "UTC")]
    timezone: Option<String>,
    /// Hours from UTC instead of a zone, -12 to 14 in steps of 0.25
    #[param(minimum = -12, maximum = 14, multiple_of = 0.25, example = 5.5)]
    hour_offset: Option<f64>,
    /// The kept generation to read as it was
    #[param(example = 3)]
    as_of: Option<u64>,
    /// `final` reads the books of final days, where all UTC days of the range are final; `counted` if left out
    #[param(example = "final")]
    basis: Option<String>,
    /// The final version of each day to read, instead of the newest
    #[param(minimum = 1, example = 1)]
    r#final: Option<u32>,
}

fn unit_names() -> Object {
    let names = Unit::ALL.map(Unit::as_str);
    let text = ObjectBuilder::new().schema_type(Type::String);
    let described = "Length of a bucket. A week begins on Sunday, an mweek on Monday. Only totals have minutes, where they are kept";
    let text = text
        .description(Some(described))
        .default(Some("day".into()));
    text.enum_values(Some(names)).build()
}
