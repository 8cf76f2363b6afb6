package apidoc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"html/template"
	"slices"
	"strings"
)

// docPage is the data of the page's template.
type docPage struct {
	Title, Service string
	About          template.HTML
	File           string // address of the file itself
	Style          template.CSS
	Groups         []operationGroup
	Schemas        []schemaDoc
}

type operationGroup struct {
	Name  string
	About template.HTML
	Ops   []operationDoc
}

// operationDoc is one operation.
type operationDoc struct {
	ID, Method, Path, Summary, Permission string
	About                                 template.HTML
	Deprecated                            bool
	Params                                []fieldRow
	Answers                               []responseDoc
	Example                               string
}

// fieldRow is one parameter or field.
type fieldRow struct {
	Name, In string
	Type     typeText
	Limits   string
	Required bool
	About    template.HTML
}

// typeText is a type: words, and perhaps a schema with a separate entry on the page.
type typeText struct{ Words, Schema string }

type responseDoc struct {
	Code  string
	About template.HTML
	Type  typeText
	Rows  []fieldRow
}

type schemaDoc struct {
	Name  string
	About template.HTML
	Type  typeText
	Rows  []fieldRow
}

// buildPage makes the page of the operations that have one of the tags.
func buildPage(t yamlTree, service string, tags []string) docPage {
	p := docPage{
		Title: t.child("info", "title").text(), Service: service,
		About: proseHTML(t.child("info", "description").text()),
		Style: style,
	}
	for _, tag := range t.child("tags").items() {
		name := tag.child("name").text()
		if !slices.Contains(tags, name) {
			continue
		}
		g := operationGroup{Name: name, About: proseHTML(tag.child("description").text())}
		for _, path := range t.child("paths").fields() {
			for _, method := range path.fields() {
				if isMethod(method.name) && listContains(method.child("tags"), name) {
					g.Ops = append(g.Ops, newOperationDoc(path, method))
				}
			}
		}
		p.Groups = append(p.Groups, g)
	}
	for _, s := range t.child("components", "schemas").fields() {
		if s.child("properties", "status").exists() && s.child("properties", "message").exists() &&
			s.child("properties", "body").exists() {
			continue // an envelope: operations show its body
		}
		p.Schemas = append(p.Schemas,
			schemaDoc{s.name, proseHTML(s.child("description").text()), typeOf(s.yamlTree), fieldRows(s.yamlTree, "",
				"")})
	}
	return p
}

func isMethod(name string) bool {
	return slices.Contains([]string{"get", "put", "post", "delete", "head", "patch"}, name)
}

func listContains(list yamlTree, text string) bool {
	return slices.ContainsFunc(list.items(), func(t yamlTree) bool { return t.text() == text })
}

func newOperationDoc(path, method mapEntry) operationDoc {
	o := operationDoc{
		Method: strings.ToUpper(method.name), Path: path.name, Summary: method.child("summary").text(),
		About: proseHTML(method.child("description").text()), Permission: method.child("x-permission").text(),
		Deprecated: method.child("deprecated").text() == "true",
	}
	o.ID = strings.Trim(strings.NewReplacer("/", "-", "{", "", "}", "").Replace(method.name+path.name), "-")
	for _, p := range slices.Concat(path.child("parameters").items(), method.child("parameters").items()) {
		p, _ := p.followRef()
		o.Params = append(o.Params, fieldRow{
			Name: p.child("name").text(), In: p.child("in").text(), Type: typeOf(p.child("schema")),
			Limits:   limitsText(p.child("schema")),
			Required: p.child("required").text() == "true", About: proseHTML(p.child("description").text()),
		})
	}
	for _, media := range method.child("requestBody", "content").fields() {
		body, _ := media.child("schema").followRef()
		o.Params = append(o.Params, fieldRows(body, "", "body")...)
		if example := media.child("example"); example.exists() {
			o.Example = indented(example)
		}
	}
	for _, a := range method.child("responses").fields() {
		if a.name != "default" {
			o.Answers = append(o.Answers, newResponseDoc(a))
		}
	}
	return o
}

// newResponseDoc converts the body of a successful response.
func newResponseDoc(a mapEntry) responseDoc {
	t, _ := a.followRef()
	out := responseDoc{Code: a.name, About: proseHTML(t.child("description").text())}
	for _, media := range t.child("content").fields() {
		s := media.child("schema")
		if body := bodySchema(s); body.exists() {
			out.Type, out.Rows = typeOf(body), fieldRows(body, "", "")
		} else if media.name != "application/json" {
			out.Type = typeText{Words: media.name}
		}
	}
	return out
}

// bodySchema returns the schema of the body of an envelope, if it has one.
func bodySchema(s yamlTree) yamlTree {
	for _, alternative := range s.child("oneOf").items() {
		alternative, _ := alternative.followRef()
		if body := alternative.child("properties", "body"); body.exists() {
			return body
		}
	}
	return yamlTree{}
}

// fieldRows lists the fields of a schema. Objects without a name are expanded in place.
func fieldRows(s yamlTree, prefix, in string) []fieldRow {
	var list []fieldRow
	for _, f := range s.child("properties").fields() {
		list = append(list, fieldRow{
			Name: prefix + f.name, In: in, Type: typeOf(f.yamlTree), Limits: limitsText(f.yamlTree),
			Required: listContains(s.child("required"), f.name), About: proseHTML(f.child("description").text()),
		})
		list = append(list, fieldRows(f.yamlTree, prefix+f.name+".", in)...)
	}
	if items := s.child("items"); items.exists() {
		list = append(list, fieldRows(items, strings.TrimSuffix(prefix, ".")+"[].", in)...)
	}
	return list
}

// typeOf names the type of a schema.
func typeOf(s yamlTree) typeText {
	if _, name := s.followRef(); name != "" {
		return typeText{Schema: name}
	}
	if items := s.child("items"); items.exists() {
		inner := typeOf(items)
		inner.Words = strings.TrimSpace("array of " + inner.Words)
		return inner
	}
	var either []string
	for _, one := range slices.Concat(s.child("oneOf").items(), s.child("anyOf").items()) {
		k := typeOf(one)
		either = append(either, strings.TrimSpace(k.Words+" "+k.Schema))
	}
	if either != nil {
		return typeText{Words: strings.Join(either, " or ")}
	}
	return typeText{Words: cmp.Or(s.child("type").text(), "anything")}
}

// limitsText describes the values that a schema allows.
func limitsText(s yamlTree) string {
	var list []string
	lo, hi := s.child("minimum").text(), s.child("maximum").text()
	switch {
	case lo != "" && hi != "":
		list = append(list, lo+" to "+hi)
	case lo != "":
		list = append(list, "at least "+lo)
	}
	for _, f := range []struct{ key, words string }{
		{"format", ""},
		{"maxLength", "at most # characters"},
		{"maxItems", "at most # elements"},
		{"pattern", ""},
		{"default", "# by default"},
	} {
		if value := s.child(f.key).text(); value != "" {
			list = append(list, cmp.Or(strings.ReplaceAll(f.words, "#", value), value))
		}
	}
	var values []string
	for _, v := range s.child("enum").items() {
		values = append(values, cmp.Or(v.text(), `""`))
	}
	if values != nil {
		list = append(list, strings.Join(values, ", "))
	}
	if s.child("nullable").text() == "true" {
		list = append(list, "or null")
	}
	return strings.Join(list, "; ")
}

// indented formats an example.
func indented(t yamlTree) string {
	value, err := t.value()
	if err != nil {
		return ""
	}
	raw, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return ""
	}
	return string(raw)
}

// proseHTML makes paragraphs, lists, code and emphasis of a text of the file.
func proseHTML(text string) template.HTML {
	var out bytes.Buffer
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if block == "" {
			continue
		}
		intro, list, _ := strings.Cut("\n"+block, "\n- ")
		if intro = strings.TrimSpace(intro); intro != "" {
			out.WriteString("<p>" + markupHTML(intro) + "</p>")
		}
		if list == "" {
			continue
		}
		out.WriteString("<ul>")
		for item := range strings.SplitSeq(list, "\n- ") {
			out.WriteString("<li>" + markupHTML(item) + "</li>")
		}
		out.WriteString("</ul>")
	}
	return template.HTML(out.String()) //nolint:gosec // every text in it went through words
}

// markupHTML escapes a text and marks code and emphasis.
func markupHTML(text string) string {
	text = template.HTMLEscapeString(text)
	for _, m := range []struct{ mark, tag string }{{"`", "code"}, {"**", "strong"}, {"*", "em"}} {
		parts := strings.Split(text, m.mark)
		if len(parts)%2 == 0 {
			continue // an odd mark is plain text
		}
		for i := 1; i < len(parts); i += 2 {
			parts[i] = "<" + m.tag + ">" + parts[i] + "</" + m.tag + ">"
		}
		text = strings.Join(parts, "")
	}
	return text
}
