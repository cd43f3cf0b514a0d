//! The `.csv` and `.svg` forms of reads: paths of their own, and media types of the plain one by `Accept`.

use serde_json::Value;
use utoipa::Modify;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{Content, ContentBuilder, OpenApi, PathItem, RefOr, Schema};

use crate::read::format::Format;

/// A read with its forms: what its CSV looks like, and what is drawn of it.
struct FileForms {
    path: &'static str,
    csv: &'static str,
    svg: Option<&'static str>,
}

const READS: [FileForms; 13] = [
    FileForms {
        path: "/v1/{namespace}/{key}/counts",
        csv: "start,count\n2012-03-15T00:00:00+00:00,0\n2012-03-16T00:00:00+00:00,5\n",
        svg: Some("A chart of the buckets"),
    },
    FileForms {
        path: "/v1/{namespace}/{key}/summary",
        csv: "total\n5\n",
        svg: Some("A badge with the total"),
    },
    FileForms {
        path: "/v1/{namespace}/{key}/by/{subtotal}",
        csv: "value,count,kind\nUS,4,value\n,1,other\n",
        svg: Some("Bars of the values; not with rollup=false"),
    },
    FileForms {
        path: "/v1/{namespace}/counts",
        csv: "start,count\n2012-03-15T00:00:00+00:00,5\n2012-03-16T00:00:00+00:00,12\n",
        svg: Some("A chart of the buckets"),
    },
    FileForms {
        path: "/v1/{namespace}/by",
        csv: "value,count,kind\nUS,12,value\n,5,other\n",
        svg: Some("Bars of the values"),
    },
    FileForms {
        path: "/v1/{namespace}/top",
        csv: "key,count,kind\nabc,5,value\n,12,other\n",
        svg: Some("Bars of the keys"),
    },
    FileForms {
        path: "/v1/{namespace}/{key}/uniques",
        csv: "start,estimate\n2012-03-15T00:00:00+00:00,0\n2012-03-16T00:00:00+00:00,4\n",
        svg: Some("A chart of the buckets"),
    },
    FileForms {
        path: "/v1/ratios/{ratio}/{entity}/{key}",
        csv: "start,numerator,denominator,ratio\n2012-03-15T00:00:00+00:00,0,0,\n2012-03-16T00:00:00+00:00,1,8,0.125\n",
        svg: Some("A chart of the buckets, in percent"),
    },
    FileForms {
        path: "/v1/query",
        csv: "query,namespace,key,start,value,count,kind\n0,l,abc,2012-03-16T00:00:00+00:00,,5,bucket\n",
        svg: None,
    },
    FileForms {
        path: "/v1/finals",
        csv: "day,version,state,at,upto,type,what,count\n2012-03-16,1,final,2012-03-20T00:05:00Z,80,click,before,3\n",
        svg: None,
    },
    FileForms {
        path: "/v1/finals/days",
        csv: "day,state,versions,at,final_at,reason\n2012-03-15,final,1 2,2012-03-19T00:05:00Z,,\n",
        svg: None,
    },
    FileForms {
        path: "/v1/finals/{day}",
        csv: "day,version,state,at,upto,type,what,count\n2012-03-16,1,final,2012-03-20T00:05:00Z,80,click,after,1\n",
        svg: Some("A waterfall: all that came, what differs, and what counts"),
    },
    FileForms {
        path: "/v1/actions/query",
        csv: "user,range,action,view,entity,key,count\nu1,1d,impression,,ad,1,3\nu1,1d,impression,,ad,2,0\n",
        svg: None,
    },
];

const CSV_RULES: &str = "RFC 4180 with a header. In rankings `kind` tells a counted `value` from the sum of the `other` ones, \
    which a limit left out, and with rollup=false from a bucket with `none`; of many queries at once rows of counts are a \
    `bucket`, and that of a summary is the `total`. Once the store has final days, counts by bucket have a column `state`. Where the total reached 2^53-1, a last column `overflow` is true in rows \
    whose count reached it. Where actions count that are known by their hour alone, a last column `approximate` says so. \
    A text that a spreadsheet would run \
    (it begins with = + - @, a tab or a carriage return, and is neither only that nor a number) has an apostrophe before it; \
    so has one that begins with apostrophes before such a text, so that taking one off gives back what was counted.";

/// Adds the forms of every read.
pub(super) struct Files;

impl Modify for Files {
    fn modify(&self, document: &mut OpenApi) {
        for forms in &READS {
            let paths = &mut document.paths.paths;
            let item = paths.get(forms.path).cloned();
            let item = item.expect("BUG: a read is described");
            for (format, suffix) in forms.formats() {
                let file = forms.file(item.clone(), format, suffix);
                paths.insert(format!("{}{suffix}", forms.path), file);
            }
            if let Some(item) = paths.get_mut(forms.path) {
                forms.accepted(item);
            }
        }
    }
}

impl FileForms {
    /// Its forms, and how their paths end.
    fn formats(&self) -> impl Iterator<Item = (Format, &'static str)> {
        let drawn = self.svg.map(|_| (Format::SVG, ".svg"));
        [(Format::Csv, ".csv")].into_iter().chain(drawn)
    }

    /// The path of one form.
    fn file(&self, mut item: PathItem, format: Format, suffix: &str) -> PathItem {
        let Some(operation) = operation(&mut item) else {
            return item;
        };
        let name = if format == Format::Csv { "CSV" } else { "SVG" };
        let summary = operation.summary.take().unwrap_or_default();
        operation.summary = Some(format!("{summary}, as {name}"));
        let id = operation.operation_id.take().unwrap_or_default();
        operation.operation_id = Some(format!("{id}{}", suffix.replace('.', "_")));
        operation.description = Some(match format {
            Format::Csv => CSV_RULES.to_owned(),
            _ => format!("{}.", self.svg.unwrap_or_default()),
        });
        if let Some(RefOr::T(answer)) = operation.responses.responses.get_mut("200") {
            answer.content.clear();
            let content = self.content(format);
            answer
                .content
                .insert(format.media_type().to_owned(), RefOr::T(content));
        }
        item
    }

    /// Adds the forms to what the plain path answers.
    fn accepted(&self, item: &mut PathItem) {
        let responses = operation(item).map(|read| &mut read.responses.responses);
        if let Some(RefOr::T(answer)) = responses.and_then(|responses| responses.get_mut("200")) {
            for (format, _) in self.formats() {
                let kind = format.media_type().to_owned();
                answer.content.insert(kind, RefOr::T(self.content(format)));
            }
        }
    }

    fn content(&self, format: Format) -> Content {
        let text: Schema = ObjectBuilder::new().schema_type(Type::String).into();
        let content = ContentBuilder::new().schema(Some(text));
        let example = (format == Format::Csv).then(|| Value::from(self.csv));
        content.example(example).build()
    }
}

/// The read of a path.
fn operation(item: &mut PathItem) -> Option<&mut Operation> {
    item.get.as_mut().or(item.post.as_mut())
}
