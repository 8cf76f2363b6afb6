package sbom

import (
	"encoding/json"
	"errors"
	"strings"
)

// spdxPackage has the relevant fields of a package.
type spdxPackage struct {
	Name             string `json:"name"`
	Version          string `json:"versionInfo"`
	Purpose          string `json:"primaryPackagePurpose"`
	SourceInfo       string `json:"sourceInfo"`
	LicenseDeclared  string `json:"licenseDeclared"`
	LicenseConcluded string `json:"licenseConcluded"`
	LicenseComments  string `json:"licenseComments"`
	ExternalRefs     []struct {
		Type    string `json:"referenceType"`
		Locator string `json:"referenceLocator"`
	} `json:"externalRefs"`
}

// readSPDX reads a package.
func (p *parser) readSPDX() error {
	var in spdxPackage
	if err := p.Decode(&in); err != nil {
		if wrong := (*json.UnmarshalTypeError)(nil); !errors.As(err, &wrong) {
			return err
		}
		p.invalid++
	}
	return p.add(in.component())
}

// Lines of the source of a package that the scanners of this project write, in addition to its paths.
const (
	builtFrom = "built from: "
	belongsTo = "belongs to: "
)

func (in *spdxPackage) component() component {
	c := component{
		name: in.Name, version: in.Version, values: map[string][]string{},
		kind: strings.ReplaceAll(strings.ToLower(in.Purpose), "_", "-"),
	}
	for _, r := range in.ExternalRefs {
		switch r.Type {
		case "purl", "http://spdx.org/rdf/references/purl":
			if c.purl == "" {
				c.purl = r.Locator
			}
		case "cpe23Type", "http://spdx.org/rdf/references/cpe23Type":
			if c.cpe == "" {
				c.cpe = r.Locator
			}
		}
	}
	for line := range strings.Lines(in.SourceInfo) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "/") {
			c.locations = append(c.locations, line)
		}
		if source, ok := strings.CutPrefix(line, builtFrom); ok {
			name, version, _ := strings.Cut(source, " ")
			c.values[propertySource], c.values[propertySourceVersion] = []string{name}, []string{version}
		}
		if owner, ok := strings.CutPrefix(line, belongsTo); ok {
			c.values[propertyOwner] = []string{owner}
		}
	}
	for line := range strings.Lines(in.LicenseComments) {
		c.licenses = append(c.licenses, strings.TrimSpace(line))
	}
	for _, l := range []string{in.LicenseDeclared, in.LicenseConcluded} {
		if l != "" && l != "NOASSERTION" && l != "NONE" && len(c.licenses) == 0 {
			c.licenses = append(c.licenses, l)
		}
	}
	return c
}

// readCreation reads which program wrote a document.
func (p *parser) readCreation() error {
	var c struct {
		Creators []string `json:"creators"`
		Comment  string   `json:"comment"`
	}
	if err := p.decode(&c); err != nil {
		return err
	}
	p.incomplete = p.incomplete || strings.HasPrefix(c.Comment, incompleteComment)
	for _, creator := range c.Creators {
		name, ok := strings.CutPrefix(creator, "Tool: ")
		name, _, _ = strings.Cut(name, "-")
		p.isOurs = p.isOurs || ok && isOurTool(name)
	}
	return nil
}
