package scan

import (
	"fmt"
	"strings"

	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/scan/container"
)

// SourceType is the kind of a source.
type SourceType string

// The types of sources.
const (
	Image     SourceType = "vm_image"
	Template  SourceType = "registry_template"
	Container SourceType = "container"
	SBOM      SourceType = "sbom"
	Dir       SourceType = "dir"
)

// allTemplates is the target that selects every template of a registry.
const allTemplates = "*"

// Source is a source to scan, as the user names it.
type Source struct {
	Type   SourceType
	Target string // a path, of a container image with its selection, or uuid[:tag] of a template
}

func (s Source) String() string { return string(s.Type) + ":" + s.Target }

// SourceForms describes the sources for messages.
const SourceForms = "vm_image:<path>, registry_template:<uuid>[:<tag>], container:<path>, sbom:<path> or dir:<path>"

// ParseSource parses "type:source".
func ParseSource(text string) (Source, error) {
	kind, target, ok := strings.Cut(text, ":")
	s := Source{SourceType(kind), target}
	switch {
	case !ok:
		return s, fmt.Errorf("invalid source %q: want %s", text, SourceForms)
	case target == "":
		return s, fmt.Errorf("invalid source %q: the part after the colon is empty", text)
	}
	switch s.Type {
	case Image, Container, SBOM, Dir:
		return s, nil
	case Template:
		return s, s.checkTemplate(text)
	default:
		return s, fmt.Errorf("invalid source %q: type %q is not vm_image, registry_template, container, sbom or dir",
			text, kind)
	}
}

// Path returns the file or directory of a source; "" for a template.
func (s Source) Path() string {
	switch s.Type {
	case Template:
		return ""
	case Container:
		name, _ := container.SplitTarget(s.Target)
		return name
	default:
		return s.Target
	}
}

// IsAllTemplates reports whether every template of a registry is selected.
func (s Source) IsAllTemplates() bool { return s.Type == Template && s.Target == allTemplates }

// HasManyTags reports whether a source is a template, or all of them, without a tag.
func (s Source) HasManyTags() bool {
	_, tag := s.templateVersion()
	return s.Type == Template && tag == ""
}

func (s Source) checkTemplate(text string) error {
	id, tag := s.templateVersion()
	_, ok := layout.ParseID(id)
	switch {
	case id == allTemplates && !s.IsAllTemplates():
		return fmt.Errorf("invalid source %q: * selects the latest tag of every template and cannot have another tag",
			text)
	case !ok && id != allTemplates:
		return fmt.Errorf(
			"invalid source %q: %q is not a template ID (a UUID such as c0847bc9-5d2d-4dbc-ba6a-240f7ff08032) or "+
				"* for all templates",
			text, id)
	case tag == "" && strings.Contains(s.Target, ":"):
		return fmt.Errorf("invalid source %q: the tag after the last colon is empty", text)
	}
	return nil
}

// templateVersion returns ID and tag of a template; no tag is the latest one.
func (s Source) templateVersion() (id, tag string) {
	id, tag, _ = strings.Cut(s.Target, ":")
	return strings.ToLower(id), tag
}
