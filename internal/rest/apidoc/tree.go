package apidoc

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlTree is a node in the file. Fields keep their order.
type yamlTree struct {
	root *yaml.Node // for references
	node *yaml.Node
}

// parseYAML reads a file.
func parseYAML(text []byte) (yamlTree, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return yamlTree{}, fmt.Errorf("parse OpenAPI description: %w", err)
	}
	if len(doc.Content) != 1 {
		return yamlTree{}, fmt.Errorf("OpenAPI description has %d YAML documents: want 1", len(doc.Content))
	}
	return yamlTree{doc.Content[0], doc.Content[0]}, nil
}

// child returns the node at a path of names; an empty one if it does not exist.
func (t yamlTree) child(names ...string) yamlTree {
	for _, name := range names {
		next := yamlTree{root: t.root}
		for _, f := range t.fields() {
			if f.name == name {
				next = f.yamlTree
			}
		}
		t = next
	}
	return t
}

// mapEntry is one field of an object.
type mapEntry struct {
	name string
	yamlTree
}

// fields lists the fields of an object in their order.
func (t yamlTree) fields() []mapEntry {
	n := t.resolved()
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	list := make([]mapEntry, 0, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		list = append(list, mapEntry{n.Content[i].Value, yamlTree{t.root, n.Content[i+1]}})
	}
	return list
}

// items lists the elements of an array.
func (t yamlTree) items() []yamlTree {
	n := t.resolved()
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	list := make([]yamlTree, len(n.Content))
	for i, item := range n.Content {
		list[i] = yamlTree{t.root, item}
	}
	return list
}

// resolved returns the target of an alias, or else the node itself.
func (t yamlTree) resolved() *yaml.Node {
	if t.node != nil && t.node.Kind == yaml.AliasNode {
		return t.node.Alias
	}
	return t.node
}

// exists reports whether the node exists.
func (t yamlTree) exists() bool { return t.node != nil }

// text returns a scalar, or "".
func (t yamlTree) text() string {
	if n := t.resolved(); n != nil && n.Kind == yaml.ScalarNode {
		return n.Value
	}
	return ""
}

// followRef returns the target of a reference, and its name; the node itself if it is not a reference.
func (t yamlTree) followRef() (yamlTree, string) {
	path, ok := strings.CutPrefix(t.child("$ref").text(), "#/")
	if !ok {
		return t, ""
	}
	names := strings.Split(path, "/")
	return yamlTree{t.root, t.root}.child(names...), names[len(names)-1]
}

// value decodes the node for encoding/json.
func (t yamlTree) value() (any, error) {
	var v any
	if err := t.node.Decode(&v); err != nil {
		return nil, fmt.Errorf("parse OpenAPI description: %w", err)
	}
	return v, nil
}
