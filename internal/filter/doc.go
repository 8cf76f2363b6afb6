// Package filter is the filter language for lists of the API, the commands and the portal:
//
//	state:error node:mac-* template:x tag:y age>10m name:"a b" -state:started
//
// Terms are joined by AND. A term is a field with one or more values, one of which must match
// (state:error,stopped); -TERM negates a term. In unquoted values * matches any text; ASCII letters
// match in either case. Ages, sizes and numbers are compared (age>10m size>=4GB vms<2). A word
// without a field is searched in the fields that a table of the resource shows. A value that a field
// with a closed set of values cannot have is an error, one that no record has is not.
//
// A Table describes the fields of a resource. The package ranks nothing and has no index: it matches
// the given records only.
//
// Invariant: the time for parsing and matching is bounded by the lengths of the text and the values.
package filter
