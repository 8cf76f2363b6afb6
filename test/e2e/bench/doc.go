// Command bench measures what the portal promises of a large cloud: how soon a page is shown, what
// keeping it fresh costs the server, and that a tab can stay open all day.
//
// It is not a test of the pages; the flows of e2e are. It runs the programs that users get, each as
// a separate process, with simulated nodes, and changes instances continuously.
//
// Invariant: a row is of a cloud that was as large, and changed as often, as the row states; where
// it was not, the row is not measured.
package main
