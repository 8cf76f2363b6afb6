package apidoc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"html/template"
	"slices"
	"strings"
)

// page is the data of the page's template.
type page struct {
	Title, Service string
	About          template.HTML
	File           string // address of the file itself
	Style          template.CSS
	Groups         []group
	Schemas        []schema
}

type group struct {
	Name  string
	About template.HTML
	Ops   []op
}

// op is one operation.
type op struct {
	ID, Method, Path, Summary, Permission string
	About                                 template.HTML
	Deprecated                            bool
	Params                                []row
	Answers                               []answer
	Example                               string
}

// row is one parameter or field.
type row struct {
	Name, In string
	Type     kind
	Limits   string
	Required bool
	About    template.HTML
}

// kind is a type: words, and perhaps a schema with a separate entry on the page.
type kind struct{ Words, Schema string }

type answer struct {
	Code  string
	About template.HTML
	Type  kind
	Rows  []row
}

type schema struct {
	Name  string
	About template.HTML
	Type  kind
	Rows  []row
}

// build makes the page of the operations that have one of the tags.
func build(t tree, service string, tags []string) page {
	p := page{
		Title: t.at("info", "title").text(), Service: service, About: prose(t.at("info", "description").text()),
		Style: style,
	}
	for _, tag := range t.at("tags").items() {
		name := tag.at("name").text()
		if !slices.Contains(tags, name) {
			continue
		}
		g := group{Name: name, About: prose(tag.at("description").text())}
		for _, path := range t.at("paths").fields() {
			for _, method := range path.fields() {
				if isMethod(method.name) && has(method.at("tags"), name) {
					g.Ops = append(g.Ops, operation(path, method))
				}
			}
		}
		p.Groups = append(p.Groups, g)
	}
	for _, s := range t.at("components", "schemas").fields() {
		if s.at("properties", "status").is() && s.at("properties", "message").is() && s.at("properties", "body").is() {
			continue // an envelope: operations show its body
		}
		p.Schemas = append(p.Schemas,
			schema{s.name, prose(s.at("description").text()), typeOf(s.tree), rows(s.tree, "", "")})
	}
	return p
}

func isMethod(name string) bool {
	return slices.Contains([]string{"get", "put", "post", "delete", "head", "patch"}, name)
}

func has(list tree, text string) bool {
	return slices.ContainsFunc(list.items(), func(t tree) bool { return t.text() == text })
}

func operation(path, method field) op {
	o := op{
		Method: strings.ToUpper(method.name), Path: path.name, Summary: method.at("summary").text(),
		About: prose(method.at("description").text()), Permission: method.at("x-permission").text(),
		Deprecated: method.at("deprecated").text() == "true",
	}
	o.ID = strings.Trim(strings.NewReplacer("/", "-", "{", "", "}", "").Replace(method.name+path.name), "-")
	for _, p := range slices.Concat(path.at("parameters").items(), method.at("parameters").items()) {
		p, _ := p.ref()
		o.Params = append(o.Params, row{
			Name: p.at("name").text(), In: p.at("in").text(), Type: typeOf(p.at("schema")),
			Limits:   limits(p.at("schema")),
			Required: p.at("required").text() == "true", About: prose(p.at("description").text()),
		})
	}
	for _, media := range method.at("requestBody", "content").fields() {
		body, _ := media.at("schema").ref()
		o.Params = append(o.Params, rows(body, "", "body")...)
		if example := media.at("example"); example.is() {
			o.Example = indented(example)
		}
	}
	for _, a := range method.at("responses").fields() {
		if a.name != "default" {
			o.Answers = append(o.Answers, answered(a))
		}
	}
	return o
}

// answered converts the body of a successful response.
func answered(a field) answer {
	t, _ := a.ref()
	out := answer{Code: a.name, About: prose(t.at("description").text())}
	for _, media := range t.at("content").fields() {
		s := media.at("schema")
		if body := bodyOf(s); body.is() {
			out.Type, out.Rows = typeOf(body), rows(body, "", "")
		} else if media.name != "application/json" {
			out.Type = kind{Words: media.name}
		}
	}
	return out
}

// bodyOf returns the schema of the body of an envelope, if it has one.
func bodyOf(s tree) tree {
	for _, alternative := range s.at("oneOf").items() {
		alternative, _ := alternative.ref()
		if body := alternative.at("properties", "body"); body.is() {
			return body
		}
	}
	return tree{}
}

// rows lists the fields of a schema. Objects without a name are expanded in place.
func rows(s tree, prefix, in string) []row {
	var list []row
	for _, f := range s.at("properties").fields() {
		list = append(list, row{
			Name: prefix + f.name, In: in, Type: typeOf(f.tree), Limits: limits(f.tree),
			Required: has(s.at("required"), f.name), About: prose(f.at("description").text()),
		})
		list = append(list, rows(f.tree, prefix+f.name+".", in)...)
	}
	if items := s.at("items"); items.is() {
		list = append(list, rows(items, strings.TrimSuffix(prefix, ".")+"[].", in)...)
	}
	return list
}

// typeOf names the type of a schema.
func typeOf(s tree) kind {
	if _, name := s.ref(); name != "" {
		return kind{Schema: name}
	}
	if items := s.at("items"); items.is() {
		inner := typeOf(items)
		inner.Words = strings.TrimSpace("array of " + inner.Words)
		return inner
	}
	var either []string
	for _, one := range slices.Concat(s.at("oneOf").items(), s.at("anyOf").items()) {
		k := typeOf(one)
		either = append(either, strings.TrimSpace(k.Words+" "+k.Schema))
	}
	if either != nil {
		return kind{Words: strings.Join(either, " or ")}
	}
	return kind{Words: cmp.Or(s.at("type").text(), "anything")}
}

// limits describes the values that a schema allows.
func limits(s tree) string {
	var list []string
	lo, hi := s.at("minimum").text(), s.at("maximum").text()
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
		if value := s.at(f.key).text(); value != "" {
			list = append(list, cmp.Or(strings.ReplaceAll(f.words, "#", value), value))
		}
	}
	var values []string
	for _, v := range s.at("enum").items() {
		values = append(values, cmp.Or(v.text(), `""`))
	}
	if values != nil {
		list = append(list, strings.Join(values, ", "))
	}
	if s.at("nullable").text() == "true" {
		list = append(list, "or null")
	}
	return strings.Join(list, "; ")
}

// indented formats an example.
func indented(t tree) string {
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

// prose makes paragraphs, lists, code and emphasis of a text of the file.
func prose(text string) template.HTML {
	var out bytes.Buffer
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if block == "" {
			continue
		}
		intro, list, _ := strings.Cut("\n"+block, "\n- ")
		if intro = strings.TrimSpace(intro); intro != "" {
			out.WriteString("<p>" + words(intro) + "</p>")
		}
		if list == "" {
			continue
		}
		out.WriteString("<ul>")
		for item := range strings.SplitSeq(list, "\n- ") {
			out.WriteString("<li>" + words(item) + "</li>")
		}
		out.WriteString("</ul>")
	}
	return template.HTML(out.String()) //nolint:gosec // every text in it went through words
}

// words escapes a text and marks code and emphasis.
func words(text string) string {
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
