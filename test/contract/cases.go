package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// sequence is one case of cases/*.yaml: requests, one after the other, and the expected responses.
type sequence struct {
	Case  string   `yaml:"case"`
	On    string   `yaml:"on"`    // cloud: "up" when empty, or "split"
	Rows  []string `yaml:"rows"`  // "+row": it covers the row, "-row": it covers its refusal
	Forms []string `yaml:"forms"` // it is repeated in each of these forms
	Alone bool     `yaml:"alone"` // it changes what others need: it runs alone, after all others
	Auth  bool     `yaml:"auth"`  // only with authentication
	Steps []step   `yaml:"steps"`

	file string
}

// step is one request of a case. Texts may have variables: $name is what an earlier step
// kept, or what the stage has.
type step struct {
	Send    string            `yaml:"send"` // method, and path with the query as it is sent
	With    map[string]any    `yaml:"with"` // fields of the JSON body
	Raw     *string           `yaml:"raw"`  // the body as it is, instead
	Size    int               `yaml:"size"` // bytes of white space as the body, instead
	As      string            `yaml:"as"`   // form; without it the forms alternate
	At      string            `yaml:"at"`   // "registry": where the path does not tell
	Headers map[string]string `yaml:"headers"`

	Code    int               `yaml:"code"` // 200, or with names 400
	OK      map[string]any    `yaml:"ok"`   // what the body of a successful answer has
	Fail    string            `yaml:"fail"` // message of a refusal; with ~ a regular expression
	Names   string            `yaml:"names"`
	Refuses string            `yaml:"refuses"` // parameter that is refused, when the message does not name it
	Rule    bool              `yaml:"rule"`    // by a rule that the file has in words only
	Text    string            `yaml:"text"`    // regular expression of an answer that is not JSON
	Header  map[string]string `yaml:"header"`  // regular expressions of headers of the answer
	Stream  time.Duration     `yaml:"stream"`  // read for so long only

	Keep   map[string]string `yaml:"keep"`   // variable -> path in the body, or "header NAME"
	Within time.Duration     `yaml:"within"` // repeat until it is as expected
	Only   []string          `yaml:"only"`   // until then instance_state is one of these
	Wait   time.Duration     `yaml:"wait"`   // before
}

//go:embed cases/*.yaml
var caseFiles embed.FS

// loadCases reads every case, in the order of files and lines.
func loadCases() ([]sequence, error) {
	names, err := fs.Glob(caseFiles, "cases/*.yaml")
	if err != nil {
		return nil, err
	}
	var all []sequence
	for _, name := range names {
		raw, err := caseFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var list []sequence
		dec := yaml.NewDecoder(strings.NewReader(string(raw)))
		dec.KnownFields(true)
		if err := dec.Decode(&list); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for i := range list {
			list[i].file = strings.TrimSuffix(path.Base(name), ".yaml")
			if len(list[i].Steps) == 0 || list[i].Case == "" {
				return nil, fmt.Errorf("%s: case %d has no name or no steps", name, i+1)
			}
		}
		all = append(all, list...)
	}
	return repeated(all), nil
}

// repeated makes one case of each form of a case.
func repeated(list []sequence) []sequence {
	var out []sequence
	for _, c := range list {
		if len(c.Forms) == 0 {
			out = append(out, c)
			continue
		}
		for _, form := range c.Forms {
			one := c
			one.Case, one.Steps = c.Case+" ("+form+")", slices.Clone(c.Steps)
			for i := range one.Steps {
				if one.Steps[i].As == "" {
					one.Steps[i].As = form
				}
			}
			out = append(out, one)
		}
	}
	return out
}

// vars are the variables of a case.
type vars map[string]any

var variable = regexp.MustCompile(`\$[a-z_][a-z0-9_]*`)

// fill puts the variables into a text.
func (v vars) fill(text string) string {
	return variable.ReplaceAllStringFunc(text, func(name string) string {
		value, ok := v[name[1:]]
		if !ok {
			return name
		}
		return fmt.Sprint(value)
	})
}

// fillAny puts the variables into every text of a value, and makes its numbers those of JSON.
func (v vars) fillAny(value any) any {
	switch x := value.(type) {
	case string:
		if whole, ok := v[strings.TrimPrefix(x, "$")]; ok && strings.HasPrefix(x, "$") {
			return jsonized(whole)
		}
		return v.fill(x)
	case map[string]any:
		out := make(map[string]any, len(x))
		for name, inner := range x {
			out[v.fill(name)] = v.fillAny(inner)
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, inner := range x {
			out[i] = v.fillAny(inner)
		}
		return out
	default:
		return jsonized(x)
	}
}

// jsonized returns a value as encoding/json decodes it.
func jsonized(value any) any {
	raw, err := json.Marshal(value)
	if err != nil {
		return value
	}
	var out any
	_ = json.Unmarshal(raw, &out)
	return out
}

// build makes the plain request of a step.
func (st step) build(s *spec, v vars) (*request, error) {
	method, target, ok := strings.Cut(v.fill(st.Send), " ")
	if !ok {
		return nil, fmt.Errorf("%q is not a request", st.Send)
	}
	p, query, _ := strings.Cut(target, "?")
	r := &request{method: method, path: p, header: http.Header{}, route: s.find(method, p)}
	var err error
	if r.query, err = url.ParseQuery(query); err != nil {
		r.query, r.broken = url.Values{}, query
	}
	r.header.Set("Content-Type", "application/json")
	if st.With != nil {
		r.fields, _ = v.fillAny(st.With).(map[string]any)
	}
	if st.Raw != nil {
		r.raw = []byte(v.fill(*st.Raw))
	}
	if st.Size > 0 {
		r.raw = bytes.Repeat([]byte(" "), st.Size)
	}
	if r.fields == nil && r.raw == nil {
		r.header.Del("Content-Type")
	}
	for _, name := range slices.Sorted(maps.Keys(st.Headers)) {
		r.header.Set(name, v.fill(st.Headers[name]))
	}
	return r, nil
}
