package apidoc

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// tree is a node in the file. Fields keep their order.
type tree struct {
	root *yaml.Node // for references
	node *yaml.Node
}

// parse reads a file.
func parse(text []byte) (tree, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return tree{}, fmt.Errorf("parse OpenAPI description: %w", err)
	}
	if len(doc.Content) != 1 {
		return tree{}, fmt.Errorf("OpenAPI description has %d YAML documents: want 1", len(doc.Content))
	}
	return tree{doc.Content[0], doc.Content[0]}, nil
}

// at returns the node at a path of names; an empty one if it does not exist.
func (t tree) at(names ...string) tree {
	for _, name := range names {
		next := tree{root: t.root}
		for _, f := range t.fields() {
			if f.name == name {
				next = f.tree
			}
		}
		t = next
	}
	return t
}

// field is one field of an object.
type field struct {
	name string
	tree
}

// fields lists the fields of an object in their order.
func (t tree) fields() []field {
	n := t.plain()
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	list := make([]field, 0, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		list = append(list, field{n.Content[i].Value, tree{t.root, n.Content[i+1]}})
	}
	return list
}

// items lists the elements of an array.
func (t tree) items() []tree {
	n := t.plain()
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	list := make([]tree, len(n.Content))
	for i, item := range n.Content {
		list[i] = tree{t.root, item}
	}
	return list
}

// plain returns the target of an alias, or else the node itself.
func (t tree) plain() *yaml.Node {
	if t.node != nil && t.node.Kind == yaml.AliasNode {
		return t.node.Alias
	}
	return t.node
}

// is reports whether the node exists.
func (t tree) is() bool { return t.node != nil }

// text returns a scalar, or "".
func (t tree) text() string {
	if n := t.plain(); n != nil && n.Kind == yaml.ScalarNode {
		return n.Value
	}
	return ""
}

// ref returns the target of a reference, and its name; the node itself if it is not a reference.
func (t tree) ref() (tree, string) {
	path, ok := strings.CutPrefix(t.at("$ref").text(), "#/")
	if !ok {
		return t, ""
	}
	names := strings.Split(path, "/")
	return tree{t.root, t.root}.at(names...), names[len(names)-1]
}

// value decodes the node for encoding/json.
func (t tree) value() (any, error) {
	var v any
	if err := t.node.Decode(&v); err != nil {
		return nil, fmt.Errorf("parse OpenAPI description: %w", err)
	}
	return v, nil
}
