package cloud

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// renameOldKeys moves the values of former keys to those of today. It refuses a context that has both.
func (c contextFile) renameOldKeys() error {
	for _, name := range slices.Sorted(maps.Keys(c.Contexts)) {
		e := c.Contexts[name]
		for _, k := range []struct {
			name, oldName string
			value, old    *string
		}{{"api-key-id", "key-id", &e.KeyID, &e.OldKeyID}, {"api-key-file", "key-file", &e.KeyFile, &e.OldKeyFile}} {
			if *k.old == "" {
				continue
			}
			if *k.value != "" {
				return fmt.Errorf("context %q: %s is the former name of %s, which is also given; remove %[2]s",
					name, k.oldName, k.name)
			}
			*k.value, *k.old = *k.old, ""
		}
		c.Contexts[name] = e
	}
	return nil
}

// Forms of the errors of the YAML decoder that name Go types.
var (
	unknownYAMLField = regexp.MustCompile(`field (.+) not found in type \S+$`)
	wrongYAMLValue   = regexp.MustCompile("cannot unmarshal !!(\\w+)(?: `.*`)? into (\\S+)$")
)

// yamlKinds are the words for the YAML types in errors.
var yamlKinds = map[string]string{"seq": "a list", "map": "a map", "str": "a text", "int": "a number"}

// readableYAMLError returns the errors of the decoder as one line without the names of Go types.
func readableYAMLError(err error) error {
	typeErr, ok := errors.AsType[*yaml.TypeError](err)
	if !ok {
		return err
	}
	texts := make([]string, len(typeErr.Errors))
	for i, text := range typeErr.Errors {
		text = unknownYAMLField.ReplaceAllString(text, "unknown key $1")
		if m := wrongYAMLValue.FindStringSubmatchIndex(text); m != nil {
			text = text[:m[0]] + "want " + wantedYAML(text[m[4]:m[5]]) + ", not " + yamlKind(text[m[2]:m[3]])
		}
		texts[i] = text
	}
	return errors.New(strings.Join(texts, "; "))
}

// yamlKind describes a type of YAML.
func yamlKind(tag string) string {
	if word, ok := yamlKinds[tag]; ok {
		return word
	}
	return "such a value"
}

// wantedYAML describes the value that a Go type is decoded from.
func wantedYAML(goType string) string {
	switch goType {
	case "string":
		return "a text"
	case "bool":
		return "true or false"
	}
	return "a map of keys and values"
}
