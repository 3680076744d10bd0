"""nbgrader's settings for this course: run it in this folder, or name the folder with --course-dir."""

c = get_config()  # noqa: F821 (nbgrader defines it)
c.CourseDirectory.course_id = "pplab"
c.ClearSolutions.code_stub = {
    "python": 'raise NotImplementedError("not done yet: put your code in place of this line")'
}
c.Execute.timeout = 60
c.Execute.error_on_timeout = {
    "ename": "Timeout",
    "evalue": "a cell ran for more than 60 seconds",
    "traceback": ["a cell ran for more than 60 seconds"],
}
