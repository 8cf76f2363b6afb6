package layout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxConfig is the largest configuration object in bytes of JSON.
const MaxConfig = 1 << 20

// CanonicalConfig gives the one form of a configuration object that content ids rest on: JSON without white
// space, keys sorted. The object must survive the way through YAML unchanged.
func CanonicalConfig(raw []byte) ([]byte, error) {
	if len(raw) > MaxConfig {
		return nil, fmt.Errorf("configuration is longer than %d bytes", MaxConfig)
	}
	object, err := decodeJSON(raw)
	if err != nil {
		return nil, err
	}
	canonical, err := encodeJSON(object)
	if err != nil {
		return nil, err
	}
	text, err := ConfigToYAML(canonical)
	if err != nil {
		return nil, err
	}
	back, err := ConfigToJSON(text)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(back, canonical) {
		return nil, fmt.Errorf("configuration holds values that YAML cannot keep")
	}
	return canonical, nil
}

// ConfigToYAML turns a configuration object from JSON into YAML. Fields it does not know are kept.
func ConfigToYAML(raw []byte) ([]byte, error) {
	object, err := decodeJSON(raw)
	if err != nil {
		return nil, err
	}
	root, err := tree(object)
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	text, err := yaml.Marshal(root)
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	return text, nil
}

// tree makes YAML nodes of what decodeJSON gives, keys sorted. Text that is not plain ASCII on one line goes
// into double quotes: the block form, which the encoder would choose, does not always decode again.
func tree(v any) (*yaml.Node, error) {
	switch v := v.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			value, err := tree(v[key])
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, textNode(key), value)
		}
		return n, nil
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, item := range v {
			value, err := tree(item)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, value)
		}
		return n, nil
	case string:
		return textNode(v), nil
	default:
		n := &yaml.Node{}
		return n, n.Encode(v)
	}
}

func textNode(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// ConfigToJSON turns a configuration object from YAML into JSON.
func ConfigToJSON(text []byte) ([]byte, error) {
	object := map[string]any{}
	if err := yaml.Unmarshal(text, &object); err != nil {
		return nil, fmt.Errorf("decode configuration: %w", err)
	}
	return encodeJSON(object)
}

func decodeJSON(raw []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var object map[string]any
	err := dec.Decode(&object)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return nil, fmt.Errorf("configuration is not JSON: %w", syntax)
	}
	if err != nil || object == nil || dec.More() { // the decoder's own words are those of a Go programmer
		return nil, errors.New("configuration is not one JSON object")
	}
	return numbers(object).(map[string]any), nil
}

// numbers turns json.Number, which YAML would write as text, into int64 or float64.
func numbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = numbers(value)
		}
	case []any:
		for i, value := range v {
			v[i] = numbers(value)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if x, err := v.Float64(); err == nil {
			return x
		}
		return v.String()
	}
	return v
}

func encodeJSON(object map[string]any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(object); err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
