package format

import (
	"encoding/json"
	"strings"
)

// FilterValue is a value for a filter. In one without special characters * is a wildcard.
func FilterValue(s string) string {
	if strings.ContainsAny(s, " (),\"\\\t") {
		return QuotedFilterValue(s)
	}
	return s
}

// filterEscapes marks the characters that end a quoted value, or escape others.
var filterEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// QuotedFilterValue is a value for a filter that is matched as it is, without wildcards.
func QuotedFilterValue(s string) string { return `"` + filterEscapes.Replace(s) + `"` }

// JSON returns a value as JSON; the text of the error where that fails.
func JSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
