package catalog

import "testing"

func TestFileOf(t *testing.T) {
	for location, want := range map[string]string{
		"/srv/app.jar":                             "/srv/app.jar",
		"/srv/app.jar!/BOOT-INF/lib/a-1.0.jar":     "/srv/app.jar",
		"/srv/app.ear!/app.war!/WEB-INF/lib/a.jar": "/srv/app.ear",
		"/srv/x.JAR!/a.jar":                        "/srv/x.JAR",
		"/srv/look!/app.jar":                       "/srv/look!/app.jar", // a directory
		"/srv/look!/app.jar!/a.jar":                "/srv/look!/app.jar",
		"!/":                                       "!/",
		"":                                         "",
	} {
		if got := FileOf(location); got != want {
			t.Errorf("%q: %q, want %q", location, got, want)
		}
	}
	if got := WithinArchive("/a.jar", "//b\xff.jar"); got != "/a.jar!/b\uFFFD.jar" {
		t.Error(got)
	}
}
