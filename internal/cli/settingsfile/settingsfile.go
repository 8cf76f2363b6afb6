package settingsfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/buildyard/buildyard/internal/cli"
)

// maxListedKeys is how many keys an error about an unknown one lists at most. Of more it lists those that resemble it.
const maxListedKeys = 12

// Decode decodes a file into the struct that into points to. Its fields have their keys in the tag "yaml", and may
// have a line that is right in the tag "example". An empty file changes nothing.
func Decode(raw []byte, into any) error {
	d := yaml.NewDecoder(bytes.NewReader(raw))
	var doc yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return reword(err)
	}
	if err := d.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return errors.New("want a single YAML document, found another after ---")
	}
	if len(doc.Content) == 1 {
		if err := checkStruct(doc.Content[0], reflect.TypeOf(into).Elem(), "configuration"); err != nil {
			return err
		}
	}
	d = yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true) // also finds what merged mappings have
	return reword(d.Decode(into))
}

// unknownKeyPattern matches the YAML error about an unknown key.
var unknownKeyPattern = regexp.MustCompile(`field (\S+) not found in type \S+`)

// reword rewords an error of the YAML reader for users.
func reword(err error) error {
	if err == nil {
		return nil
	}
	text := unknownKeyPattern.ReplaceAllString(err.Error(), `unknown key "$1"`)
	return errors.New(strings.Join(strings.Fields(strings.TrimPrefix(text, "yaml: unmarshal errors:")), " "))
}

// checkStruct compares the keys and values of a mapping with the fields of a struct.
func checkStruct(n *yaml.Node, t reflect.Type, name string) error {
	if n = target(n); isNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: %s: want lines such as key: value, found %s", n.Line, name, describe(n))
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag == "!!merge" {
			continue
		}
		f, ok := fieldByKey(t, key.Value)
		if !ok {
			known := "; known are " + strings.Join(keys(t), ", ")
			if t.NumField() > maxListedKeys {
				known = cli.DidYouMean(key.Value, keys(t))
			}
			return fmt.Errorf("line %d: unknown key %q%s", key.Line, shorten(key.Value), known)
		}
		if err := checkValue(value, f.Type, key.Value, f.Tag.Get("example")); err != nil {
			return err
		}
	}
	return nil
}

// checkValue compares the form of a value with the type of its field.
func checkValue(n *yaml.Node, t reflect.Type, key, example string) error {
	if n = target(n); isNull(n) {
		return nil
	}
	wrong := func(n *yaml.Node, want string) error {
		text := fmt.Sprintf("line %d: %s: want %s, found %s", n.Line, key, want, describe(n))
		if example != "" {
			text += "; for example: " + example
		}
		return errors.New(text)
	}
	switch {
	case t.Kind() == reflect.Slice && n.Kind != yaml.SequenceNode:
		return wrong(n, "a list")
	case t.Kind() == reflect.Slice:
		for _, item := range n.Content {
			switch item = target(item); {
			case t.Elem().Kind() == reflect.Struct && item.Kind != yaml.MappingNode:
				return wrong(item, "a list of rules with keys ("+strings.Join(keys(t.Elem()), ", ")+")")
			case t.Elem().Kind() == reflect.Struct:
				if err := checkStruct(item, t.Elem(), key); err != nil {
					return fmt.Errorf("%s: %w", key, err)
				}
			case item.Kind != yaml.ScalarNode:
				return wrong(item, "a list of texts")
			}
		}
	case n.Kind != yaml.ScalarNode:
		return wrong(n, describeType(t))
	case t.Kind() != reflect.String && n.Decode(reflect.New(t).Interface()) != nil:
		return wrong(n, describeType(t))
	}
	return nil
}

// target returns the node that an alias names.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func fieldByKey(t reflect.Type, key string) (reflect.StructField, bool) {
	for f := range t.Fields() {
		if f.Tag.Get("yaml") == key {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// keys returns the keys of a struct.
func keys(t reflect.Type) []string {
	var out []string
	for f := range t.Fields() {
		out = append(out, f.Tag.Get("yaml"))
	}
	return out
}

func describeType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Float64, reflect.Int:
		return "a number"
	default:
		return "a text"
	}
}

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "keys with values"
	case yaml.SequenceNode:
		return "a list"
	default:
		return fmt.Sprintf("the text %q", shorten(n.Value))
	}
}

// shorten returns at most 60 bytes of a text for a message.
func shorten(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "..."
	}
	return s
}
