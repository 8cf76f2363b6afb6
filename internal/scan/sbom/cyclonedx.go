package sbom

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// cdxComponent has the relevant fields of a component.
type cdxComponent struct {
	Type     string `json:"type"`
	Group    string `json:"group"`
	Name     string `json:"name"`
	Version  string `json:"version"`
	PURL     string `json:"purl"`
	CPE      string `json:"cpe"`
	Licenses []struct {
		License struct {
			ID   string `json:"id"`
			Name string `json:"name"`
		} `json:"license"`
		Expression string `json:"expression"`
	} `json:"licenses"`
	Properties []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"properties"`
	Evidence struct {
		Occurrences []struct {
			Location string `json:"location"`
		} `json:"occurrences"`
	} `json:"evidence"`
}

// readCycloneDX reads a component and those in it, whose texts are not kept with it: documents may nest them deeply.
func (p *parser) readCycloneDX(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("its components are nested in more than %d levels", maxDepth)
	}
	first, err := p.Token()
	if err != nil {
		return err
	}
	if first != json.Delim('{') {
		p.invalid++
		return errors.Join(p.skipRest(first), p.add(component{}))
	}
	var c cdxComponent
	fields := map[string]any{
		"type": &c.Type, "group": &c.Group, "name": &c.Name, "version": &c.Version, "purl": &c.PURL, "cpe": &c.CPE,
		"licenses": &c.Licenses, "properties": &c.Properties, "evidence": &c.Evidence,
	}
	isInvalid := false
	for p.More() {
		key, err := p.Token()
		if err != nil {
			return err
		}
		name, _ := key.(string)
		switch field, ok := fields[name]; {
		case name == "components":
			err = p.eachElement(func() error { return p.readCycloneDX(depth + 1) })
		case ok:
			err = p.Decode(field)
		default:
			err = p.skip()
		}
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
			isInvalid, err = true, nil
		}
		if err != nil {
			return err
		}
	}
	if isInvalid {
		p.invalid++
	}
	if _, err := p.Token(); err != nil {
		return err
	}
	return p.add(c.component())
}

// knownProperties are the beginnings of the names of properties that are read.
var knownProperties = []string{"buildyard:", "syft:location:", "aquasecurity:trivy:"}

func (c *cdxComponent) component() component {
	out := component{
		kind: c.Type, group: c.Group, name: c.Name, version: c.Version, purl: c.PURL, cpe: c.CPE,
		values: map[string][]string{},
	}
	for _, l := range c.Licenses {
		for _, text := range []string{l.License.ID, l.License.Name, l.Expression} {
			if text != "" {
				out.licenses = append(out.licenses, text)
			}
		}
	}
	for _, o := range c.Evidence.Occurrences {
		out.locations = append(out.locations, o.Location)
	}
	for _, v := range c.Properties {
		for _, prefix := range knownProperties {
			if strings.HasPrefix(v.Name, prefix) {
				out.values[v.Name] = append(out.values[v.Name], v.Value)
			}
		}
		isPath := strings.HasPrefix(v.Name, "syft:location:") && strings.HasSuffix(v.Name, ":path")
		if (isPath || v.Name == "aquasecurity:trivy:FilePath") && len(c.Evidence.Occurrences) == 0 {
			out.locations = append(out.locations, v.Value)
		}
	}
	return out
}

// readMetadata reads which program wrote a document.
func (p *parser) readMetadata() error {
	var m struct {
		Tools json.RawMessage `json:"tools"` // a list of tools until 1.4, since then also an object with components
	}
	if err := p.decode(&m); err != nil {
		return err
	}
	type tool struct {
		Name string `json:"name"`
	}
	var list []tool
	var object struct {
		Components []tool `json:"components"`
	}
	if len(m.Tools) > 0 && json.Unmarshal(m.Tools, &list) != nil && json.Unmarshal(m.Tools, &object) == nil {
		list = object.Components
	}
	for _, t := range list {
		p.isOurs = p.isOurs || isOurTool(t.Name)
	}
	return nil
}

// readCompositions reads whether a document says that it is incomplete.
func (p *parser) readCompositions() error {
	var list []struct {
		Aggregate string `json:"aggregate"`
	}
	if err := p.decode(&list); err != nil {
		return err
	}
	for _, c := range list {
		p.incomplete = p.incomplete || strings.HasPrefix(c.Aggregate, "incomplete")
	}
	return nil
}
