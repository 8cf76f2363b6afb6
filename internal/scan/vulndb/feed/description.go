package feed

import (
	"encoding/json"
	"strings"

	"go.yaml.in/yaml/v3"
)

// langText is a text with its language, as NVD and CVE records have it.
type langText struct {
	Lang  lenientString `json:"lang"`
	Value lenientString `json:"value"`
}

// englishText returns the first text in English; "" is none.
func englishText(list []langText) string {
	for _, t := range list {
		if strings.HasPrefix(strings.ToLower(string(t.Lang)), "en") {
			return string(t.Value)
		}
	}
	return ""
}

// reference is the address of a web page, as OSV, NVD and CVE records have it.
type reference struct {
	URL  lenientString `json:"url" yaml:"url"`
	Type lenientString `json:"type" yaml:"type"` // of OSV: "PACKAGE", "ADVISORY", "WEB"
}

func referenceURLs(list []reference) []string {
	var out []string
	for _, r := range list {
		if r.URL != "" {
			out = append(out, string(r.URL))
		}
	}
	return out
}

// lenientList is a list of references, or empty for a value of another type: what is only shown never makes a record
// a bad one.
type lenientList []reference

// UnmarshalJSON accepts a list and ignores any other value.
func (l *lenientList) UnmarshalJSON(b []byte) error {
	var list []reference
	if json.Unmarshal(b, &list) == nil {
		*l = list
	}
	return nil
}

// UnmarshalYAML accepts a list and ignores any other value.
func (l *lenientList) UnmarshalYAML(n *yaml.Node) error {
	var list []reference
	if n.Decode(&list) == nil {
		*l = list
	}
	return nil
}

// lenientTexts is a list of texts, or empty for a value of another type.
type lenientTexts []langText

// UnmarshalJSON accepts a list and ignores any other value.
func (l *lenientTexts) UnmarshalJSON(b []byte) error {
	var list []langText
	if json.Unmarshal(b, &list) == nil {
		*l = list
	}
	return nil
}
