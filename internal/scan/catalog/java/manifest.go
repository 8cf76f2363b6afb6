package java

import (
	"bufio"
	"bytes"
	"strings"
)

// manifest is the main section of a MANIFEST.MF.
type manifest struct {
	attributes map[string]string
}

// parseManifest reads the lines up to the first empty one. A line that begins with a
// blank continues with the one before.
func parseManifest(data []byte) *manifest {
	m := &manifest{attributes: map[string]string{}}
	s := bufio.NewScanner(bytes.NewReader(data))
	s.Buffer(nil, maxManifestBytes+1)
	key, value := "", strings.Builder{}
	for s.Scan() {
		line := strings.TrimSuffix(s.Text(), "\r")
		if line == "" {
			break
		}
		text, continued := strings.CutPrefix(line, " ")
		if !continued {
			m.attributes[key] = value.String()
			key, text, _ = strings.Cut(line, ":")
			key, text = strings.ToLower(key), strings.TrimSpace(text)
			value.Reset()
		}
		value.WriteString(text)
	}
	m.attributes[key] = value.String()
	return m
}

// firstMatching returns the first value among some attributes that suits accepts.
func (m *manifest) firstMatching(suits func(string) bool, keys ...string) string {
	for _, k := range keys {
		v, _, _ := strings.Cut(m.attributes[k], ";") // directives follow
		if v = strings.TrimSpace(v); suits(v) {
			return v
		}
	}
	return ""
}

// group returns the value that is most likely a group: a name with dots.
func (m *manifest) group() string {
	g := m.firstMatching(func(s string) bool {
		return isCoordinatePart(s) && strings.Contains(s, ".") && !strings.Contains(s, "/") && !strings.Contains(s, ":")
	},
		"bundle-symbolicname", "extension-name", "implementation-vendor-id", "implementation-vendor",
		"automatic-module-name", "package")
	return strings.ToLower(g)
}

// artifact returns the value that is most likely an artifact.
func (m *manifest) artifact() string {
	if m.attributes["created-by"] == "Apache Maven Bundle Plugin" {
		if name := m.firstMatching(isCoordinatePart, "bundle-symbolicname"); name != "" {
			return name[strings.LastIndexByte(name, '.')+1:]
		}
	}
	return m.firstMatching(isCoordinatePart, "implementation-title", "specification-title", "bundle-name", "short-name",
		"extension-name",
		"bundle-symbolicname")
}

// version returns the maker's version, not that of a specification if another is there.
func (m *manifest) version() string {
	v := m.firstMatching(func(s string) bool { return s != "" && s[0] >= '0' && s[0] <= '9' },
		"implementation-version", "bundle-version", "plugin-version", "specification-version")
	v, _, _ = strings.Cut(v, " ")
	return v
}

// licenses returns the address or name in the manifest of a bundle.
func (m *manifest) licenses() []string {
	l := m.firstMatching(func(s string) bool { return s != "" && len(s) <= 200 }, "bundle-license")
	if l == "" {
		return nil
	}
	return []string{l}
}

// knownGroups are those of common archives without pom.properties and whose manifests name another
// group.
var knownGroups = map[string]string{
	"log4j":               "log4j",
	"ant":                 "org.apache.ant",
	"ant-launcher":        "org.apache.ant",
	"bcprov":              "org.bouncycastle",
	"junit":               "junit",
	"hamcrest-core":       "org.hamcrest",
	"axis":                "axis",
	"struts":              "struts",
	"commons-collections": "commons-collections",
	"commons-fileupload":  "commons-fileupload",
	"commons-httpclient":  "commons-httpclient",
	"commons-beanutils":   "commons-beanutils",
	"commons-io":          "commons-io",
	"commons-codec":       "commons-codec",
	"commons-lang":        "commons-lang",
	"commons-logging":     "commons-logging",
	"spring-core":         "org.springframework",
	"spring-web":          "org.springframework",
	"spring-webmvc":       "org.springframework",
	"spring-beans":        "org.springframework",
	"spring-context":      "org.springframework",
	"spring-expression":   "org.springframework",
	"h2":                  "com.h2database",
	"postgresql":          "org.postgresql",
	"protobuf-java":       "com.google.protobuf",
	"guava":               "com.google.guava",
	"gson":                "com.google.code.gson",
	"snakeyaml":           "org.yaml",
	"xstream":             "com.thoughtworks.xstream",
}
