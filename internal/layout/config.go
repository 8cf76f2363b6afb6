package layout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxConfigJSON is the largest configuration object in bytes of JSON.
const MaxConfigJSON = 1 << 20

const (
	// maxConfigDepth is the maximum nesting depth of a configuration's values: each level indents all of its lines.
	maxConfigDepth = 16
	// maxConfigYAML is the largest configuration object in bytes of YAML that is written.
	maxConfigYAML = maxConfigFile / 2
)

// CanonicalConfig returns the canonical form of a configuration object, from which content IDs are computed:
// JSON without white space, keys sorted. The object must survive the conversion to YAML and back unchanged.
func CanonicalConfig(raw []byte) ([]byte, error) {
	if len(raw) > MaxConfigJSON {
		return nil, fmt.Errorf("configuration is longer than %d bytes", MaxConfigJSON)
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
	if len(text) > maxConfigYAML {
		return nil, fmt.Errorf("configuration is longer than %d bytes as YAML", maxConfigYAML)
	}
	back, err := ConfigToJSON(text)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(back, canonical) {
		return nil, fmt.Errorf("configuration has values that YAML cannot represent")
	}
	return canonical, nil
}

// ConfigToYAML converts a configuration object from JSON to YAML. It keeps unknown fields.
func ConfigToYAML(raw []byte) ([]byte, error) {
	object, err := decodeJSON(raw)
	if err != nil {
		return nil, err
	}
	root, err := yamlNode(object)
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	text, err := yaml.Marshal(root)
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	return text, nil
}

// yamlNode converts the results of decodeJSON to YAML nodes, keys sorted. Text that is not plain ASCII on one line
// is double-quoted: the block form, which the encoder would choose, does not always decode again.
func yamlNode(v any) (*yaml.Node, error) {
	switch v := v.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			value, err := yamlNode(v[key])
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, textNode(key), value)
		}
		return n, nil
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, item := range v {
			value, err := yamlNode(item)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, value)
		}
		return n, nil
	case string:
		return textNode(v), nil
	case int64: // and so on: the library's own conversion takes a hundred times as long for each
		return scalarNode("!!int", strconv.FormatInt(v, 10)), nil
	case float64:
		return scalarNode("!!float", strconv.FormatFloat(v, 'g', -1, 64)), nil
	case bool:
		return scalarNode("!!bool", strconv.FormatBool(v)), nil
	case nil:
		return scalarNode("!!null", "null"), nil
	default:
		return nil, fmt.Errorf("configuration has a value of the unsupported type %T", v)
	}
}

func scalarNode(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

func textNode(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// ConfigToJSON converts a configuration object from YAML to JSON.
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
	if err != nil || object == nil || dec.More() { // the decoder's messages are for Go programmers
		return nil, errors.New("configuration is not one JSON object")
	}
	if remainingDepth(object, maxConfigDepth) < 0 {
		return nil, fmt.Errorf("configuration is nested more than %d levels deep", maxConfigDepth)
	}
	return convertNumbers(object).(map[string]any), nil
}

// remainingDepth returns how many of the left levels v does not need; negative when there are too few.
func remainingDepth(v any, left int) int {
	if left < 0 {
		return left
	}
	least := left
	switch v := v.(type) {
	case map[string]any:
		for _, value := range v {
			least = min(least, remainingDepth(value, left-1))
		}
	case []any:
		for _, value := range v {
			least = min(least, remainingDepth(value, left-1))
		}
	}
	return least
}

// convertNumbers converts json.Number, which YAML would write as text, to int64 or float64.
func convertNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = convertNumbers(value)
		}
	case []any:
		for i, value := range v {
			v[i] = convertNumbers(value)
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
