// Package filter is the filter language for lists of the API, the commands and the portal:
//
//	state:error node:mac-* template:x tag:y age>10m name:"a b" -state:started
//
// Terms are joined by AND. A term is a field with a value, or with several, of which one has to
// match (state:error,stopped); -TERM is the opposite of the term. In values * stands for any text,
// unless they are quoted; ASCII letters match in either case. Ages, sizes and numbers are compared
// (age>10m size>=4GB vms<2). A word alone is searched in the name fields of a resource.
//
// It does not know any resource: a Table describes the fields of one. It is not a search engine:
// nothing is ranked, and only the given records are matched.
//
// Invariant: the time for parsing and matching is bounded by the length of the text and of the
// values, whatever they contain.
package filter
