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

// form is the format of the records of a set.
type form struct {
	is    func(name string) bool // whether a file is a record
	named bool                   // its name is the list of all its IDs
	// reduce returns the record without fields that do not decide, and its IDs.
	reduce func(data []byte, ids map[string]bool) ([]byte, []string, error)
}

func ending(ext string) func(string) bool {
	return func(name string) bool { return path.Ext(name) == ext }
}

var forms = map[string]form{
	"brew":          {is: ending(".json"), reduce: reduceJSON(osvKeep)},
	"ghsa-sample":   {is: ending(".json"), reduce: reduceJSON(osvKeep)},
	"govulndb-osv":  {is: ending(".json"), reduce: reduceJSON(osvKeep)},
	"nvd-overrides": {is: ending(".json"), named: true, reduce: reduceJSON(nvdKeep)},
	"vulnrichment":  {is: ending(".json"), named: true, reduce: reduceJSON(cveKeep)},
	"kev":           {is: ending(".json"), reduce: reduceKEV},
	"pypa":          {is: ending(".yaml"), reduce: reduceYAML(osvKeep)},
	"rubysec":       {is: ending(".yml"), reduce: reduceYAML(rubyKeep)},
	"rustsec":       {is: ending(".md"), reduce: reduceRust},
}

// keep selects which keys of an object stay: nil for all below a key.
type keep map[string]keep

func all(keys string) keep {
	k := keep{}
	for key := range strings.FieldsSeq(keys) {
		k[key] = nil
	}
	return k
}

func (k keep) with(key string, below keep) keep {
	k[key] = below
	return k
}

var (
	osvKeep = all("schema_version id aliases upstream related modified published withdrawn severity").
		with("affected", all("package versions severity ranges").
			with("ecosystem_specific", all("custom_ranges")).
			with("database_specific", all("last_known_affected_version_range"))).
		with("database_specific", all("review_status github_reviewed severity"))

	nvdKeep = keep{}.with("_annotation", all("cve_id")).with("cve", all("configurations metrics"))

	scores  = all("cvssV2_0 cvssV3_0 cvssV3_1 cvssV4_0")
	cveKeep = all("dataType dataVersion").with("cveMetadata", all("cveId state datePublished")).
		with("containers", keep{}.
			with("cna", keep{}.with("metrics", scores).with("providerMetadata", all("shortName"))).
			with("adp", keep{}.with("metrics", scores).with("providerMetadata", all("shortName"))))

	kevKeep = all("catalogVersion dateReleased count").
		with("vulnerabilities", all("cveID vendorProject product dateAdded knownRansomwareCampaignUse"))

	rubyKeep = all(
		"gem engine library framework platform cve ghsa osvdb date cvss_v2 cvss_v3 cvss_v4 unaffected_versions "+
			"patched_versions").
		with("related", all("cve ghsa"))

	rustKeep = keep{}.with("advisory", all("id package collection aliases related date withdrawn informational cvss")).
			with("versions", nil).with("affected", all("os arch"))
)

// of drops other keys; empty objects are dropped with them.
func (k keep) of(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, below := range v {
			inner, ok := k[key]
			if ok && inner != nil {
				below = inner.of(below)
				v[key] = below
			}
			if !ok || empty(below) && key != "cve" {
				delete(v, key)
			}
		}
		return v
	case []any:
		for i := range v {
			v[i] = k.of(v[i])
		}
		return slices.DeleteFunc(v, empty)
	}
	return v
}

func empty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// about returns the IDs that a record names as its own.
func about(v map[string]any) []string {
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

func reduceJSON(k keep) func([]byte, map[string]bool) ([]byte, []string, error) {
	return func(data []byte, _ map[string]bool) ([]byte, []string, error) {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		var v map[string]any
		if err := d.Decode(&v); err != nil {
			return nil, nil, err
		}
		k.of(v)
		dropGit(v)
		out, err := json.Marshal(v)
		return append(out, '\n'), about(v), err
	}
}

// dropGit drops ranges of commits, which have no order here.
func dropGit(v map[string]any) {
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
func reduceYAML(k keep) func([]byte, map[string]bool) ([]byte, []string, error) {
	return func(data []byte, _ map[string]bool) ([]byte, []string, error) {
		var doc yaml.Node
		if err := yaml.Unmarshal(data, &doc); err != nil {
			return nil, nil, err
		}
		if len(doc.Content) != 1 {
			return nil, nil, errors.New("no document")
		}
		k.ofNode(doc.Content[0])
		out, err := yaml.Marshal(doc.Content[0])
		if err != nil {
			return nil, nil, err
		}
		var v map[string]any
		err = yaml.Unmarshal(out, &v)
		return out, about(v), err
	}
}

func (k keep) ofNode(n *yaml.Node) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	switch n.Kind {
	case yaml.SequenceNode:
		for _, c := range n.Content {
			k.ofNode(c)
		}
		n.Content = slices.DeleteFunc(n.Content, gitRange)
	case yaml.MappingNode:
		var kept []*yaml.Node
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			inner, ok := k[key.Value]
			if !ok && k != nil {
				continue
			}
			inner.ofNode(value)
			if value.Kind != yaml.MappingNode || len(value.Content) > 0 {
				key.HeadComment, key.LineComment, key.FootComment = "", "", ""
				kept = append(kept, key, value)
			}
		}
		n.Content = kept
	}
}

func gitRange(n *yaml.Node) bool {
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
	kevKeep.of(v)
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
	rustKeep.of(v)
	var out bytes.Buffer
	out.WriteString("```toml\n")
	if err := toml.NewEncoder(&out).Encode(v); err != nil {
		return nil, nil, err
	}
	out.WriteString("```\n")
	advisory, _ := v["advisory"].(map[string]any)
	return out.Bytes(), about(advisory), nil
}
