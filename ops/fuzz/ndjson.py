"""What schemathesis must be told: a body of JSON lines is sent as the text that it is."""

import schemathesis

schemathesis.serializer.alias("application/x-ndjson", "text/plain")
