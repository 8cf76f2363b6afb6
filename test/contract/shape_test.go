package main

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/buildyard/buildyard/api"
)

// answered are the shapes of answers by their names in the file, and asked those of requests, whose
// fields may be left out unless their types forbid it.
var (
	answered = map[string]any{
		"Instance": api.Instance{}, "InstanceItem": api.InstanceItem{}, "Explanation": api.Explanation{},
		"VMInfo": api.VMInfo{}, "ScriptResult": api.ScriptResult{},
		"HistoryInstance": api.HistoryInstance{}, "SaveImage": api.SaveImage{}, "Node": api.Node{},
		"Group": api.Group{}, "OrphanedVM": api.OrphanedVM{}, "AdoptResult": api.OrphanOutcome{},
		"Maintenance": api.Maintenance{}, "ControllerStatus": api.ControllerStatus{},
		"ControllerStats": api.ControllerStats{}, "Template": api.Template{},
		"TemplateDetail": api.TemplateDetail{}, "TemplateVersion": api.TemplateVersion{},
		"Distribution": api.Distribution{}, "Removal": api.Removal{}, "DiskInfo": api.DiskInfo{},
		"RegistryStatus": api.RegistryStatus{}, "RegistryStats": api.RegistryStats{}, "StorageJob": api.StorageJob{},
		"JoinResponse": api.JoinAnswer{}, "RegistryTokenResponse": api.RegistryTokenResponse{},
		"PollResponse": api.PollAnswer{},
		"AuthConfig":   api.AuthConfig{}, "LoginProvider": api.LoginProvider{}, "ShakeResponse": api.ShakeAnswer{},
		"Session": api.Session{}, "APIKey": api.Key{},
		"Permission": api.Permission{}, "PermissionGroup": api.PermissionGroup{},
		"PermissionText": api.PermissionText{}, "ResourcePermissions": api.ResourcePermissions{},
		"PushSession": api.PushSession{}, "PushResult": api.PushResult{}, "PullManifest": api.PullManifest{},
	}
	asks = map[string]any{
		"JoinRequest": api.JoinRequest{}, "RegistryTokenRequest": api.RegistryTokenRequest{},
		"PollRequest": api.PollRequest{}, "Report": api.Report{}, "PushRequest": api.PushRequest{},
		"TemplateConfig": api.TemplateConfig{},
		"Resource":       api.Resource{},
	}
)

// added are fields of the file that are in no type, since they are put in by hand.
var added = map[string]bool{"Instance.explain": true, "InstanceItem.vm.explain": true}

// brief are fields that are always in the type, and absent from lists of templates with apiVer=v1.
var brief = map[string]bool{
	"Template.size": true, "Template.arch": true, "Template.last_pull": true,
	"Template.last_push": true,
}

// TestShapesAreThoseOfTheTypes: the file has the fields that the programs write and read, of
// their JSON types, and those are required that are always there. So a field that no case has
// met yet is in the file as well.
func TestShapesAreThoseOfTheTypes(t *testing.T) {
	schemas := theSpec(t).doc.Components.Schemas
	for name, shape := range answered {
		compareShape(t, name, reflect.TypeOf(shape), schemas[name], true)
	}
	for name, shape := range asks {
		compareShape(t, name, reflect.TypeOf(shape), schemas[name], false)
	}
}

func compareShape(t *testing.T, where string, typ reflect.Type, ref *openapi3.SchemaRef, answer bool) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if ref == nil || ref.Value == nil {
		t.Errorf("%s is not in the file", where)
		return
	}
	s := ref.Value
	kind := jsonType(typ)
	if s.Type == nil || kind == "" { // one of several, or anything
		return
	}
	if !s.Type.Is(kind) {
		t.Errorf("%s is %s and in the file %v", where, kind, *s.Type)
		return
	}
	switch {
	case kind == "array":
		compareShape(t, where+"[]", typ.Elem(), s.Items, answer)
	case typ.Kind() == reflect.Map && s.AdditionalProperties.Schema != nil:
		compareShape(t, where+"{}", typ.Elem(), s.AdditionalProperties.Schema, answer)
	case kind == "object" && len(s.Properties) > 0:
		compareFields(t, where, typ, s, answer)
	}
}

func compareFields(t *testing.T, where string, typ reflect.Type, s *openapi3.Schema, answer bool) {
	t.Helper()
	open := s.AdditionalProperties.Has != nil && *s.AdditionalProperties.Has
	fields := jsonFields(typ)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		f := fields[name]
		if s.Properties[name] == nil {
			if !open {
				t.Errorf("%s.%s is not in the file", where, name)
			}
			continue
		}
		if needed := slices.Contains(s.Required, name); answer && !open && needed == f.omitted &&
			!brief[where+"."+name] {
			t.Errorf("%s.%s: in the file it is required: %v; in the type it may be left out: %v", where, name, needed,
				f.omitted)
		}
		compareShape(t, where+"."+name, f.typ, s.Properties[name], answer)
	}
	for name := range s.Properties {
		if _, ok := fields[name]; !ok && !added[where+"."+name] {
			t.Errorf("%s.%s is in the file alone", where, name)
		}
	}
}

// jsonField is a field as encoding/json has it.
type jsonField struct {
	typ     reflect.Type
	omitted bool // when it is empty
}

func jsonFields(typ reflect.Type) map[string]jsonField {
	fields := map[string]jsonField{}
	if typ.Kind() != reflect.Struct {
		return fields
	}
	for f := range typ.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			maps.Copy(fields, jsonFields(f.Type))
		case f.IsExported() && name != "-":
			fields[name] = jsonField{f.Type, strings.Contains(options, "omit")}
		}
	}
	return fields
}

// jsonType is the type of a Go type in JSON; "" when it may be of any.
func jsonType(typ reflect.Type) string {
	if typ == reflect.TypeFor[time.Time]() {
		return "string"
	}
	switch typ.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Slice:
		if typ.Elem().Kind() == reflect.Uint8 {
			return ""
		}
		return "array"
	case reflect.Map, reflect.Struct:
		return "object"
	case reflect.Interface:
		return ""
	default:
		return "integer"
	}
}
