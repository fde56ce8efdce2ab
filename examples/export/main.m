% octave main.m
[lengths, total] = distances_mex([3 1; 0 2; 4 2]);
printf("%g %g %g\n", lengths(1), lengths(2), total);
try
  distances_mex(zeros(3, 0));
  exit(1);
catch problem
  exit(isempty(strfind(problem.message, "out of its bounds")));
end
