package lockfile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
)

// bomb is a project whose properties expand to 2^n texts.
func bomb(n int) string {
	var b strings.Builder
	b.WriteString(
		"<project><groupId>g</groupId><artifactId>a</artifactId><version>1</version><properties><p0>xxxxxxxx</p0>")
	for i := range n {
		fmt.Fprintf(&b, "<p%d>${p%d}${p%d}</p%d>", i+1, i, i, i+1)
	}
	fmt.Fprintf(&b,
		"</properties><dependencies><dependency><groupId>g</groupId><artifactId>b</artifactId>"+
			"<version>${p%d}</version></dependency></dependencies></project>", n)
	return b.String()
}

// Input that would take unlimited time or memory, or be silently truncated, is refused and
// reported.
func TestRefused(t *testing.T) {
	var pip, bun strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&pip, `,"p%d":{"version":"==1.0","x":"%0200d"}`, i, i)
		fmt.Fprintf(&bun, `,"p%d":["p%d@1.0.0","%0200d"]`, i, i, i)
	}
	for name, text := range map[string]string{
		"Pipfile.lock": `{"default":{"a":{"version":"==1.0"}` + pip.String() + `}}`,
		"bun.lock":     `{"packages":{"a":["a@1.0.0"]` + bun.String() + `}}`,
		"yarn.lock": "# yarn lockfile v1\n\na@^1.0.0:\n  version \"1.0.0\"\n\n# " + strings.Repeat("x", 1<<16) +
			"\nb@1.0.0:\n  version \"1.0.0\"\n",
		"pom.xml": bomb(40),

		"requirements.txt": strings.Repeat("a==1\n", maxLines+1),
	} {
		r, err := catalog.Scan(t.Context(), catalogtest.Tree(catalogtest.Files{name: text}),
			catalog.Options{Extractors: All()})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Packages) > 0 || len(r.Warnings) != 1 || r.Warnings[0].InvalidContent {
			t.Errorf("%s: %d packages, %.300v", name, len(r.Packages), r.Warnings)
		}
	}
}

// Very many properties are refused: comparing their values would keep a processor busy for a
// minute, without a way to cancel it.
func TestManyProperties(t *testing.T) {
	project := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "<a>%d</a>", i)
		}
		return "<project><groupId>g</groupId><artifactId>a</artifactId><version>1</version><properties>" + b.String() +
			"</properties></project>"
	}
	catalogtest.Expect(t, All(), catalogtest.Files{"pom.xml": project(maxProperties / 10)})
	catalogtest.Expect(t, All(), catalogtest.Files{"pom.xml": project(maxProperties)}, // with its own version and group
		"! /pom.xml: java/pom.xml: the file is too large: the POM has more than 10000 properties")
}

// Properties of the parent projects count, too, both of benign and of hostile ones.
func TestProjectsAbove(t *testing.T) {
	child := `<project><parent><groupId>g</groupId><artifactId>a</artifactId><version>1</version></parent><artifactId>c</artifactId><properties><rest>3</rest></properties>` +
		`<dependencies><dependency><groupId>${project.parent.groupId}.x</groupId><artifactId>b</artifactId><version>${rest}.0</version></dependency></dependencies></project>`
	above := func(properties string) string {
		return `<project><groupId>g</groupId><artifactId>a</artifactId><version>1</version><packaging>pom</packaging><properties>` + properties + `</properties>` +
			`<dependencies><dependency><groupId>g</groupId><artifactId>d</artifactId><version>${rev}</version></dependency></dependencies></project>`
	}
	catalogtest.Expect(t, All(),
		catalogtest.Files{"pom.xml": above("<rev>1.${minor}</rev><minor>2</minor>"), "c/pom.xml": child},
		"java g.x:b 3.0 /c/pom.xml", "java g:d 1.2 /c/pom.xml /pom.xml")
	spaced := strings.NewReplacer("><", ">\n  <")
	catalogtest.Expect(t, All(),
		catalogtest.Files{"pom.xml": spaced.Replace(above("<rev>1</rev>")), "c/pom.xml": spaced.Replace(child)},
		"java g.x:b 3.0 /c/pom.xml", "java g:d 1 /c/pom.xml /pom.xml")
	levels := "<rev>1</rev>"
	for i := range 30 {
		levels += fmt.Sprintf("<p%d>${p%d}${p%d}</p%d>", i, i+1, i+1, i)
	}
	catalogtest.Expect(t, All(), catalogtest.Files{"pom.xml": above(levels), "c/pom.xml": child},
		"! /pom.xml: java/pom.xml: the file is too large: the properties of the POM refer to each other without end",
		"! /c/pom.xml: java/pom.xml: the file is too large: the properties of the POM refer to each other without end")
}
