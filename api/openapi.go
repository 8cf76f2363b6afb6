package api

import _ "embed"

// OpenAPI is the description of both APIs, openapi.yaml: every route, parameter and answer.
//
//go:embed openapi.yaml
var OpenAPI []byte
