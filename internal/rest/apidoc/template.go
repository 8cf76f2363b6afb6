package apidoc

import "html/template"

// style is the complete style sheet of the page.
const style = `
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 0 auto; padding: 1rem 1.5rem 4rem; }
code, pre, .path, td:first-child { font-family: ui-monospace, monospace; font-size: .9em; }
nav ul { list-style: none; padding: 0; columns: 22rem; } nav li { break-inside: avoid; }
section { border-top: 1px solid var(--line); margin-top: 1.5rem; padding-top: .5rem; }
h3 { margin-bottom: .2rem; } .method { display: inline-block; min-width: 4.2rem; font-weight: 700; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line); }
td p { margin: 0; } pre { background: var(--soft); padding: .75rem; overflow: auto; } .old { text-decoration: line-through; }
@media (max-width: 40rem) { table { display: block; overflow-x: auto; } }
`

var shown = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}: {{.Service}} API</title>
<style>{{.Style}}</style>
</head>
<body>
<h1>{{.Title}}: {{.Service}} API</h1>
{{.About}}
<p>The same for programs: <a href="{{.File}}.yaml">YAML</a>, <a href="{{.File}}.json">JSON</a>.</p>
<nav aria-label="Operations">
{{range .Groups}}<h2>{{.Name}}</h2>
<ul>{{range .Ops}}<li><a href="#{{.ID}}"><span class="method">{{.Method}}</span> <span class="path">{{.Path}}</span></a></li>
{{end}}</ul>
{{end}}</nav>
<main>
{{range .Groups}}<h2>{{.Name}}</h2>
{{.About}}
{{range .Ops}}<section id="{{.ID}}">
<h3{{if .Deprecated}} class="old"{{end}}><span class="method">{{.Method}}</span> <span class="path">{{.Path}}</span></h3>
<p>{{.Summary}}{{if .Deprecated}} (deprecated){{end}}{{if ne .Permission "-"}} &middot; permission <code>{{.Permission}}</code>{{else}} &middot; open{{end}}</p>
{{.About}}
{{if .Params}}{{template "rows" .Params}}{{end}}
{{if .Example}}<pre>{{.Example}}</pre>{{end}}
{{range .Answers}}<p><strong>{{.Code}}</strong> {{template "kind" .Type}}</p>{{.About}}
{{if .Rows}}{{template "rows" .Rows}}{{end}}
{{end}}</section>
{{end}}{{end}}
<h2>Shapes</h2>
{{range .Schemas}}<section id="schema-{{.Name}}">
<h3>{{.Name}}</h3>
{{.About}}
{{if .Rows}}{{template "rows" .Rows}}{{else}}<p>{{template "kind" .Type}}</p>{{end}}
</section>
{{end}}</main>
</body>
</html>
{{define "kind"}}{{.Words}}{{if .Schema}} <a href="#schema-{{.Schema}}">{{.Schema}}</a>{{end}}{{end}}
{{define "rows"}}<table>
<thead><tr><th scope="col">Name</th><th scope="col">Type</th><th scope="col">Meaning</th></tr></thead>
<tbody>
{{range .}}<tr><td>{{.Name}}{{if .Required}} *{{end}}</td><td>{{template "kind" .Type}}{{if .Limits}}<br><small>{{.Limits}}</small>{{end}}</td><td>{{.About}}{{if .In}}<small>{{.In}}</small>{{end}}</td></tr>
{{end}}</tbody>
</table>{{end}}`))
