package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"go.yaml.in/yaml/v3"
)

// recordFormat is the format of the records of a set.
type recordFormat struct {
	isRecord   func(name string) bool // whether a file is a record
	nameHasIDs bool                   // its name is the list of all its IDs
	// reduce returns the record without fields that do not decide, and its IDs.
	reduce func(data []byte, ids map[string]bool) ([]byte, []string, error)
}

func hasExtension(ext string) func(string) bool {
	return func(name string) bool { return path.Ext(name) == ext }
}

var formats = map[string]recordFormat{
	"brew":          {isRecord: hasExtension(".json"), reduce: reduceJSON(osvKeys)},
	"ghsa-sample":   {isRecord: hasExtension(".json"), reduce: reduceJSON(osvKeys)},
	"govulndb-osv":  {isRecord: hasExtension(".json"), reduce: reduceJSON(osvKeys)},
	"nvd-overrides": {isRecord: hasExtension(".json"), nameHasIDs: true, reduce: reduceJSON(nvdKeys)},
	"vulnrichment":  {isRecord: hasExtension(".json"), nameHasIDs: true, reduce: reduceJSON(cveKeys)},
	"kev":           {isRecord: hasExtension(".json"), reduce: reduceKEV},
	"pypa":          {isRecord: hasExtension(".yaml"), reduce: reduceYAML(osvKeys)},
	"rubysec":       {isRecord: hasExtension(".yml"), reduce: reduceYAML(rubyKeys)},
	"rustsec":       {isRecord: hasExtension(".md"), reduce: reduceRust},
}

// keySet selects which keys of an object stay: nil for all below a key.
type keySet map[string]keySet

func keepKeys(keys string) keySet {
	k := keySet{}
	for key := range strings.FieldsSeq(keys) {
		k[key] = nil
	}
	return k
}

func (k keySet) with(key string, below keySet) keySet {
	k[key] = below
	return k
}

var (
	osvKeys = keepKeys("schema_version id aliases upstream related modified published withdrawn severity").
		with("affected", keepKeys("package versions severity ranges").
			with("ecosystem_specific", keepKeys("custom_ranges")).
			with("database_specific", keepKeys("last_known_affected_version_range"))).
		with("database_specific", keepKeys("review_status github_reviewed severity"))

	nvdKeys = keySet{}.with("_annotation", keepKeys("cve_id")).with("cve", keepKeys("configurations metrics"))

	scoreKeys = keepKeys("cvssV2_0 cvssV3_0 cvssV3_1 cvssV4_0")
	cveKeys   = keepKeys("dataType dataVersion").with("cveMetadata", keepKeys("cveId state datePublished")).
			with("containers", keySet{}.
				with("cna", keySet{}.with("metrics", scoreKeys).with("providerMetadata", keepKeys("shortName"))).
				with("adp", keySet{}.with("metrics", scoreKeys).with("providerMetadata", keepKeys("shortName"))))

	kevKeys = keepKeys("catalogVersion dateReleased count").
		with("vulnerabilities", keepKeys("cveID vendorProject product dateAdded knownRansomwareCampaignUse"))

	rubyKeys = keepKeys(
		"gem engine library framework platform cve ghsa osvdb date cvss_v2 cvss_v3 cvss_v4 unaffected_versions "+
			"patched_versions").
		with("related", keepKeys("cve ghsa"))

	rustKeys = keySet{}.with("advisory",
		keepKeys("id package collection aliases related date withdrawn informational cvss")).
		with("versions", nil).with("affected", keepKeys("os arch"))
)

// filter drops other keys; empty objects are dropped with them.
func (k keySet) filter(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, below := range v {
			inner, ok := k[key]
			if ok && inner != nil {
				below = inner.filter(below)
				v[key] = below
			}
			if !ok || isEmpty(below) && key != "cve" {
				delete(v, key)
			}
		}
		return v
	case []any:
		for i := range v {
			v[i] = k.filter(v[i])
		}
		return slices.DeleteFunc(v, isEmpty)
	}
	return v
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// recordIDs returns the IDs that a record names as its own.
func recordIDs(v map[string]any) []string {
	var out []string
	for _, key := range []string{"id", "aliases", "upstream"} {
		switch v := v[key].(type) {
		case string:
			out = append(out, v)
		case []any:
			for _, e := range v {
				if s, ok := e.(string); ok {
					out = append(out, s)
				}
			}
		}
	}
	if s, ok := v["cve"].(string); ok {
		out = append(out, "CVE-"+s)
	}
	return out
}

func reduceJSON(k keySet) func([]byte, map[string]bool) ([]byte, []string, error) {
	return func(data []byte, _ map[string]bool) ([]byte, []string, error) {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		var v map[string]any
		if err := d.Decode(&v); err != nil {
			return nil, nil, err
		}
		k.filter(v)
		dropGitRanges(v)
		out, err := json.Marshal(v)
		return append(out, '\n'), recordIDs(v), err
	}
}

// dropGitRanges drops ranges of commits, which have no order here.
func dropGitRanges(v map[string]any) {
	affected, _ := v["affected"].([]any)
	for _, a := range affected {
		m, _ := a.(map[string]any)
		if ranges, ok := m["ranges"].([]any); ok {
			m["ranges"] = slices.DeleteFunc(ranges,
				func(r any) bool { r2, _ := r.(map[string]any); return r2["type"] == "GIT" })
		}
	}
}

// reduceYAML works on nodes, so that 1.10 stays 1.10.
func reduceYAML(k keySet) func([]byte, map[string]bool) ([]byte, []string, error) {
	return func(data []byte, _ map[string]bool) ([]byte, []string, error) {
		var doc yaml.Node
		if err := yaml.Unmarshal(data, &doc); err != nil {
			return nil, nil, err
		}
		if len(doc.Content) != 1 {
			return nil, nil, errors.New("no document")
		}
		k.filterNode(doc.Content[0])
		out, err := yaml.Marshal(doc.Content[0])
		if err != nil {
			return nil, nil, err
		}
		var v map[string]any
		err = yaml.Unmarshal(out, &v)
		return out, recordIDs(v), err
	}
}

func (k keySet) filterNode(n *yaml.Node) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	switch n.Kind {
	case yaml.SequenceNode:
		for _, c := range n.Content {
			k.filterNode(c)
		}
		n.Content = slices.DeleteFunc(n.Content, isGitRange)
	case yaml.MappingNode:
		var kept []*yaml.Node
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			inner, ok := k[key.Value]
			if !ok && k != nil {
				continue
			}
			inner.filterNode(value)
			if value.Kind != yaml.MappingNode || len(value.Content) > 0 {
				key.HeadComment, key.LineComment, key.FootComment = "", "", ""
				kept = append(kept, key, value)
			}
		}
		n.Content = kept
	}
}

func isGitRange(n *yaml.Node) bool {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "type" && n.Content[i+1].Value == "GIT" {
			return true
		}
	}
	return false
}

func reduceKEV(data []byte, ids map[string]bool) ([]byte, []string, error) {
	var v map[string]any
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, nil, err
	}
	list, _ := v["vulnerabilities"].([]any)
	list = slices.DeleteFunc(list, func(e any) bool {
		m, _ := e.(map[string]any)
		id, _ := m["cveID"].(string)
		return !ids[id]
	})
	v["vulnerabilities"], v["count"] = list, len(list)
	kevKeys.filter(v)
	out, err := json.Marshal(v)
	// Any ID of the table will do: the KEV catalog is one file.
	var some []string
	for id := range ids {
		some = append(some, id)
	}
	return append(out, '\n'), some, err
}

var frontMatter = regexp.MustCompile("(?s)^\\s*```toml\n(.*?)\n```")

func reduceRust(data []byte, _ map[string]bool) ([]byte, []string, error) {
	m := frontMatter.FindSubmatch(data)
	if m == nil {
		return nil, nil, errors.New("no front matter")
	}
	var v map[string]any
	if err := toml.Unmarshal(m[1], &v); err != nil {
		return nil, nil, err
	}
	rustKeys.filter(v)
	var out bytes.Buffer
	out.WriteString("```toml\n")
	if err := toml.NewEncoder(&out).Encode(v); err != nil {
		return nil, nil, err
	}
	out.WriteString("```\n")
	advisory, _ := v["advisory"].(map[string]any)
	return out.Bytes(), recordIDs(advisory), nil
}
